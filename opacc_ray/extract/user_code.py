"""The user's code: what a model returns for a batch, and errors that name the line of code that raised them.

Commands run it in a process of its own: it may print, crash, hang or eat memory there. What it prints becomes log
lines, and a crash becomes an error in one sentence that names the line of code. In a notebook the user's code stays in
the user's process.
"""

import contextlib
import faulthandler
import importlib
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.spec.user_modules import is_installed

if TYPE_CHECKING:
    from opacc_ray.spec import Spec

log = logging.getLogger(__name__)

MOST_LINES = 100
"""Lines printed by the user's code that are shown; the last ones are kept for the log file of an error."""

LONGEST_LINE = 2000
"""Characters of a printed line that are shown."""

LAST_WORDS = 2.0  # seconds to read what a process printed that has ended
TICK = 1.0  # seconds between two checks of the process that the command still runs

FIRST_TO_DIE = "1000"
"""OOM score of the process: if memory runs out, the kernel ends it, and not the command."""

_FRAME = re.compile(r'File "(.+)", line (\d+) in (\S+)')  # of faulthandler

Result = TypeVar("Result")


class EndedError(DataError):
    """The process of the user's code has died, or was ended because it hung or had too little memory."""


class Activations(NamedTuple):
    """Activations of a model for a batch of B examples."""

    hidden: NDArray[np.float32] | None  # (B, m); None if the model returns its output alone
    output: NDArray[np.float32]  # (B, C)
    layers: tuple[NDArray[np.float32], ...]  # (B, neurons) each; empty unless coverage is extracted


Running = Callable[[], tuple[Activations, float]]
"""Waits for the activations of a batch that has begun, and returns them with the seconds that it took on the device."""


def split_answer(returned: Any) -> tuple[Any, Any]:
    """Return the hidden layer that a function or a program returns, or None, and the rest of what it returns.

    It is under that name in a mapping, or the first of two arrays; two rows of numbers are no such pair.
    """
    if isinstance(returned, Mapping):
        return returned.get("hidden"), {key: value for key, value in returned.items() if key != "hidden"}
    if isinstance(returned, tuple | list) and len(returned) == 2 and np.ndim(returned[0]) > 1:
        return returned[0], returned[1]
    return None, returned


@contextmanager
def user_code(what: str, remedy: str = "") -> Iterator[None]:
    """Convert errors of the user's code in the block to DataError; errors of this package and MemoryError pass.

    ``what`` names the function and its key in the spec, such as ``model.factory 'mypkg:net'``.
    """
    try:
        yield
    except (OpaccError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # the latter would end the process with the exit code of success
        reason = shortened(str(error))
        text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(Path(frame.filename))]
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        failure = DataError(f"{what} raised {text}{place}" + (f"; {remedy}" if remedy else ""))
        failure.details = "".join(traceback.format_exception(error))
        raise failure from None


def is_users(file: Path) -> bool:
    """Return whether a file is neither installed nor of this package."""
    return file.exists() and not file.is_relative_to(Path(__file__).parents[1]) and not is_installed(file)


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Let :func:`call` use processes of their own in the block; they end with it."""
    global _children
    if _children is not None:
        yield
        return
    _children = _Children()
    try:
        yield
    finally:
        ended, _children = _children, None
        ended.end()


def begin(spec: "Spec") -> None:
    """Start a process that imports what the model of a spec needs, and do not wait for it.

    Nothing happens outside of :func:`isolated`, or for a pool of features.
    """
    if _children is not None and not spec.pool.holds_features:
        child = _children.take(spec.extract.threads_per_actor)
        child.prepare(_import, ["trial"] if spec.model.function else ["torch_model", "trial"])
        _children.idle.append(child)


def _import(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(f"opacc_ray.extract.{name}")


def call(function: Callable[..., Result], *arguments: Any, seconds: float | None = None) -> Result:
    """Return ``function(*arguments)``, computed in another process inside of :func:`isolated`.

    Function, arguments and result must be picklable there. Raises what the function raises, and DataError if its
    process ends, or if ``seconds`` pass.
    """
    children = _children
    if children is None:
        return function(*arguments)
    child = children.take()
    with _memory_named():
        result: Result = child.call(function, *arguments, seconds=seconds)
    children.idle.append(child)
    return result


def stream(
    function: Callable[..., Iterator[Result]], *arguments: Any, seconds: float | None = None, threads: int = 1
) -> Generator[Result, None, None]:
    """Yield what ``function(*arguments)`` yields, as :func:`call`; ``seconds`` are for each item.

    The process computes on that many ``threads``, as an actor of Ray does.
    """
    children = _children
    if children is None:
        yield from function(*arguments)
        return
    child = children.take(threads)
    with _memory_named():
        yield from child.stream(function, *arguments, seconds=seconds)
    children.idle.append(child)


@contextmanager
def _memory_named() -> Iterator[None]:
    """Convert a lack of memory in another process."""
    try:
        yield
    except MemoryError as error:
        reason = shortened(str(error))
        raise EndedError(f"memory ran out in the user's code ({reason}); lower extract.batch_size") from None


class _Children:
    """The processes of a command: as many as threads call at once."""

    def __init__(self) -> None:
        self.idle: list[Child] = []
        self._all: list[Child] = []

    def take(self, threads: int | None = None) -> "Child":
        """Return an idle process, or a new one; None: of any number of threads."""
        for child in self.idle:
            if threads in (None, child.threads):
                self.idle.remove(child)
                return child
        self._all.append(Child(threads=threads or 1))
        return self._all[-1]

    def end(self) -> None:
        for child in self._all:
            child.end()


_children: _Children | None = None


class Child:
    """The process of one caller, and what it prints; it inherits ``files``.

    NumPy computes on ``threads`` there unless the environment states another number, as Ray has it.
    """

    def __init__(self, files: Sequence[int] = (), threads: int = 1) -> None:
        self.threads = threads
        self._is_preparing = False
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "opacc_ray.extract.user_code"],  # -P: not from the current folder
            env={"OMP_NUM_THREADS": str(threads)} | os.environ | paths,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=files,
            start_new_session=True,  # Ctrl-C is for the command, which then ends this
        )
        self._last: deque[str] = deque(maxlen=MOST_LINES)
        self._printing = threading.Thread(target=self._show, daemon=True)
        self._printing.start()

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
        """Return ``function(*arguments)``; raises EndedError if the process ends, or if ``seconds`` pass."""
        self._ask(function, arguments)
        result, _ = self._answer(seconds)
        return result

    def stream(self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Iterator[Any]:
        """Yield what ``function(*arguments)`` yields; ``seconds`` are for each item."""
        self._ask(function, arguments)
        while True:
            result, is_last = self._answer(seconds)
            if is_last:
                return
            yield result

    def prepare(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function whose result is not needed, and do not wait for it; the next call raises its errors again."""
        self._ask(function, arguments)
        self._is_preparing = True

    def _ask(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        assert self._process.stdin is not None
        if self._is_preparing:
            self._is_preparing = False
            with contextlib.suppress(Exception):
                self._answer(None)
        try:
            pickle.dump((function, arguments), self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            self._raise_ended(None)

    def _answer(self, seconds: float | None) -> tuple[Any, bool]:
        """Return the next result, and whether it is the last one; log what comes before it."""
        assert self._process.stdout is not None
        begun = time.monotonic()  # before the timer: else a busy machine may measure less than has passed
        late = threading.Timer(seconds or threading.TIMEOUT_MAX, self._process.send_signal, [signal.SIGABRT])
        late.daemon = True
        if seconds:
            late.start()
        try:
            while isinstance(answer := pickle.load(self._process.stdout), logging.LogRecord):
                own = logging.getLogger(answer.name)
                if own.isEnabledFor(answer.levelno):
                    own.handle(answer)
        except (EOFError, pickle.UnpicklingError):
            self._raise_ended(seconds if seconds and time.monotonic() - begun >= seconds else None)
        finally:
            late.cancel()
        result, error, is_last = answer
        if error is not None:
            raise error
        return result, is_last

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._printing.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _show(self) -> None:
        """Log what the process prints; of a line that rewrites itself, such as a progress bar, the last state."""
        assert self._process.stderr is not None
        shown = 0
        while line := self._process.stderr.readline(LONGEST_LINE):
            text = line.decode(errors="backslashreplace").rstrip("\r\n").rpartition("\r")[2]
            self._last.append(text)
            shown += 1
            if shown <= MOST_LINES and not self._is_fatal():
                log.info("%s", text)
            elif shown == MOST_LINES + 1:
                log.info("further output of the user's code is not shown")

    def _is_fatal(self) -> bool:
        """Whether the last lines are those of a crash, which go to the log file."""
        return any(text.startswith("Fatal Python error") for text in self._last)

    def _raise_ended(self, late: float | None) -> NoReturn:
        """Raise the error of a process that has ended, ``late`` because that many seconds passed."""
        number = self._process.wait()
        self._printing.join(LAST_WORDS)  # processes that it started may hold the pipe
        frames = [found for text in self._last if (found := _FRAME.search(text))]
        own = next((found for found in frames if is_users(Path(found[1]))), None)
        where = f" at {own[1]}:{own[2]} in {own[3]}" if own else ""
        if late is not None:
            how, remedy = f"finished nothing for {late:g} s{where}", "it hangs, or extract.shard_timeout is too short"
        elif number == -signal.SIGKILL:
            how, remedy = "was killed", "most often memory runs out: lower extract.batch_size, or free memory"
        elif number < 0:
            how, remedy = f"died of {signal.Signals(-number).name}{where}", "repair it, or the library that it calls"
        else:
            how, remedy = f"ended its process with exit code {number}", "let it raise an error instead"
        failure = EndedError(f"the user's code (model or transform) {how}; {remedy}")
        failure.details = "\n".join(self._last)
        raise failure


# -- in the process ---------------------------------------------------------------------------------------------


class _ToCaller(logging.Handler):
    """Sends log records to the caller."""

    def __init__(self, answers: BinaryIO) -> None:
        super().__init__()
        self._answers = answers

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = record.getMessage(), None
        record.exc_info = None
        _send(self._answers, record)


def _send(answers: BinaryIO, answer: Any) -> None:
    data = pickle.dumps(answer)
    with _SENDING:
        answers.write(data)
        answers.flush()


_SENDING = threading.Lock()


def main() -> None:
    """Answer calls until the input ends."""
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="backslashreplace", closefd=False)
    faulthandler.enable()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_DIE)
    logging.basicConfig(handlers=[_ToCaller(answers)], level=logging.INFO, force=True)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    while calls.peek(1):
        function, arguments = pickle.load(calls)
        raised = result = None
        try:
            result = function(*arguments)
            while isinstance(result, Iterator):
                _send(answers, (next(result), None, False))
        except StopIteration:
            result = None
        except Exception as error:
            raised = error
            if not isinstance(error, OpaccError):
                raised = error if isinstance(error, MemoryError) else RuntimeError(f"{type(error).__name__}: {error}")
                raised.add_note(traceback.format_exc())
        _send(answers, (result, raised, True))


def _end_with(caller: int) -> None:
    """End this process once the caller has ended, even while the user's code hangs."""
    while os.getppid() == caller:
        time.sleep(TICK)
    os._exit(0)


if __name__ == "__main__":
    main()
