"""The user's code in a process of its own: what it prints, how it ends, and errors that it raises."""

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_pictures import picture
from small_spec import small_spec

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract import user_code
from opacc_ray.extract.user_code import EndedError, call, isolated  # before the fixture that replaces it in commands
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # where a child finds the functions of this module
    with isolated():
        yield


def printing(text: str) -> int:
    print(text)
    sys.stdout.flush()
    os.write(1, b"native\n")
    logging.getLogger("opacc_ray.here").warning("a warning of %s", "ours")
    return os.getpid()


def test_what_it_prints_becomes_log_lines(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.INFO)
    assert call(printing, "hello") == call(printing, "a bar\rits last state") != os.getpid()
    user_code._children.end()
    assert [text for text in caplog.messages if text in ("hello", "its last state")] == ["hello", "its last state"]
    assert caplog.messages.count("native") == caplog.messages.count("a warning of ours") == 2
    assert capfd.readouterr() == ("", "")


def test_loggers_that_are_silent_here_are_silent_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(logging.getLogger("opacc_ray.here"), "level", logging.ERROR)
    call(printing, "hello")
    user_code._children.end()
    assert "hello" in caplog.messages
    assert "a warning of ours" not in caplog.messages


def test_endless_output_is_shown_in_part(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    call(printing, "line\n" * 1000 + "x" * 10_000)
    user_code._children.end()
    shown = [text for text in caplog.messages if "warning" not in text]
    assert len(shown) == user_code.MOST_LINES + 1
    assert shown[-1] == "further output of the user's code is not shown"


def loaded() -> tuple[int, bool, bool]:
    return os.getpid(), "torch" in sys.modules, "opacc_ray.extract.trial" in sys.modules


def number() -> Iterator[int]:
    yield os.getpid()


@pytest.mark.parametrize("model", [{"factory": "small_model:network"}, {"function": "small_model:network"}])
def test_a_process_imports_ahead_what_a_model_needs_and_serves_all_calls(model: dict[str, str], tmp_path: Path) -> None:
    spec = parse_spec(small_spec("pool", str(tmp_path), model=model, extract={"threads_per_actor": 2}), "spec")
    user_code.begin(spec)
    process, has_torch, has_trial = call(loaded)
    assert (has_torch, has_trial) == ("factory" in model, True)
    assert list(user_code.stream(number, threads=2)) == [process]
    assert list(user_code.stream(number, threads=1)) != [process]


def test_an_error_of_what_is_imported_ahead_is_left_to_the_call_that_needs_it() -> None:
    child = user_code.Child()
    child.prepare(json.loads, "{")
    process, *_ = child.call(loaded)
    child.prepare(crash)
    with pytest.raises(EndedError):
        child.call(loaded)
    child.end()
    assert process != os.getpid()


def crash() -> None:
    ctypes.string_at(0)


def test_a_crash_is_an_error_that_names_the_line() -> None:
    line = crash.__code__.co_firstlineno + 1
    with pytest.raises(DataError, match=rf"died of SIGSEGV at {__file__}:{line} in crash; repair it") as caught:
        call(crash)
    assert "Segmentation fault" in caught.value.details
    assert call(os.getpid) != os.getpid()  # the next one gets another process


@pytest.mark.parametrize(
    ("function", "argument", "text"),
    [
        (os._exit, 3, "ended its process with exit code 3; let it raise an error instead"),
        (sys.exit, 0, "ended its process with exit code 0"),
        (signal.raise_signal, signal.SIGKILL, "was killed; most often memory runs out"),
    ],
)
def test_an_end_is_an_error(function: object, argument: int, text: str) -> None:
    with pytest.raises(DataError, match=text):
        call(function, argument)


def hang(seconds: int) -> None:
    time.sleep(seconds)


def test_what_hangs_is_ended() -> None:
    call(hang, 0)  # so that the process has imported this file
    with pytest.raises(DataError, match=r"finished nothing for 3 s at .*test_user_process.py:\d+ in hang; it hangs"):
        call(hang, 1000, seconds=3)


class TimerThatHolds(threading.Timer):
    """Its time passes while the command gets no processor."""

    def start(self) -> None:
        time.sleep(self.interval)
        self.function(*self.args)


def test_what_hangs_is_no_crash_where_the_command_waits_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Timer", TimerThatHolds)
    with pytest.raises(DataError, match=r"finished nothing for 0.5 s"):
        call(hang, 1000, seconds=0.5)


def raising(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (SpecError("model.factory is wrong"), SpecError, "^model.factory is wrong$"),
        (MemoryError("1 TiB"), DataError, "memory ran out in the user's code"),
        (KeyError("weights"), RuntimeError, "KeyError: 'weights'"),
    ],
)
def test_errors_come_back(error: Exception, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call(raising, error)


@pytest.mark.parametrize("function", ["chatty", "dying"])
def test_a_command_keeps_its_output_from_the_model(function: str, tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    for i in range(50, 58):
        (tmp_path / "pool" / f"{i}.png").write_bytes(picture(i))
    model = {"function": f"numpy_model:{function}"}
    spec = small_spec(
        str(tmp_path), str(tmp_path), model=model, transform="small_pictures:to_input", sample={"budget": 4}
    )
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, "-m", "opacc_ray", "check", str(tmp_path / "spec.yaml"), "--json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    if function == "chatty":
        assert (done.returncode, found["ok"]) == (0, True)
        assert set(done.stderr.splitlines()) == {r"\x1b[31mmodel\x1b]0;title\x07"}
    else:
        assert done.returncode == 5
        assert "ended its process with exit code 1" in found["checks"][-1]["found"]
