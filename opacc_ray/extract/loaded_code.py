"""What Python really loaded to compute features: modules, files that the user's code read, and versions of libraries.

    loaded-DIGEST.json      next to shards; one for each set of modules that a process had when it wrote a shard

Import statements do not show all code that decides a feature: a name may be made at run time, a file executed, a
constant read from JSON. So a process that extracts records what is in ``sys.modules``, and which files the user's code
has opened for reading, which an audit hook sees. Before features are reused, each file is looked up by its name and
compared, and each version; nothing is imported for that.

A file's key is its path below a folder of modules, if Python finds it there, or else its whole path. Not seen are
variables of the environment, what is patched into modules at run time, answers of a network, and files that compiled
code reads by itself (safetensors, OpenCV, HDF5); the spot check is for these (:mod:`opacc_ray.extract.trial`).
"""

import importlib
import importlib.util
import logging
import os
import platform
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib.machinery import all_suffixes
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal

from opacc_ray.documents import SealedDocument, format_field
from opacc_ray.errors import DataError, counted
from opacc_ray.extract.content_digest import (
    ABSENT,
    CodeContent,
    changes,
    digest_of,
    digest_of_file,
    library_version,
    owners_of_modules,
)
from opacc_ray.lake.store_uris import Store
from opacc_ray.spec.user_modules import find_module, is_installed, module_places

log = logging.getLogger(__name__)

_NAMES = """
aiohttp aiosignal annotated_types anyio attr attrs boto3 botocore certifi cffi charset_normalizer click cloudpickle
colorama cryptography dateutil distlib fastapi filelock frozenlist fsspec google grpc h11 httptools idna jinja2
jmespath jsonpointer jsonschema jsonschema_specifications markupsafe msgpack multidict opencensus opentelemetry
packaging pkg_resources platformdirs prometheus_client propcache psutil pydantic pydantic_core ray referencing
requests rfc3339_validator rpds s3transfer setproctitle setuptools six smart_open sniffio starlette tqdm
typing_extensions typing_inspection urllib3 uvicorn uvloop virtualenv watchfiles websockets wrapt yaml yarl
"""
TOOLS = frozenset(_NAMES.split())
"""Installed modules that this package and Ray bring into each process, and that compute no feature."""

_SYSTEM = ("/dev", "/etc", "/proc", "/run", "/sys", "/usr", "/var", tempfile.gettempdir())
_HIDDEN = re.compile(r"/(\.|__pycache__/)")
_PACKAGE = Path(__file__).parents[1]


class LoadedCode(CodeContent, SealedDocument):
    """Code that was in memory of a process that computed features."""

    remedy: ClassVar[str] = "delete the folder and run the spec again"

    format: Literal["opacc-loaded/1"] = format_field("opacc-loaded/1")


# -- in the process that computes ------------------------------------------------------------------------------

_opened: set[str] = set()  # files that the user's code opened in this process
_sought: set[str] = set()  # modules that it imported, or tried to
_looking = threading.Lock()
_LOCK = threading.Lock()
_watching = 0


@contextmanager
def watched() -> Iterator[None]:
    """Note the files that the user's code opens, and what it imports, during the block, on any thread."""
    global _watching
    _install()
    with _LOCK:
        _watching += 1
    try:
        yield
    finally:
        with _LOCK:
            _watching -= 1


@cache
def _install() -> None:
    sys.addaudithook(_note)  # for the life of the process


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "import") or not _watching:
        return
    if event == "import":
        if _is_of_user(sys._getframe(1).f_code.co_filename):
            _sought.add(arguments[0])
        return
    path, _, flags = arguments
    reads = isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR)
    if reads and isinstance(path, str | bytes | os.PathLike) and _is_by_user(sys._getframe(1)):
        _opened.add(os.path.abspath(os.fsdecode(path)))


def _is_by_user(frame: FrameType | None) -> bool:
    """Return whether the user's code is nearer to a frame than this package; what is installed acts for either."""
    while frame is not None:
        if (own := _is_of_user(frame.f_code.co_filename)) is not None:
            return own
        frame = frame.f_back
    return False


@lru_cache(maxsize=4096)
def _is_of_user(file: str) -> bool | None:
    """Return whether a source file is the user's; None if it is installed."""
    if Path(file).is_relative_to(_PACKAGE):
        return False
    return None if file.startswith("<") or is_installed(Path(file)) else True


def state() -> tuple[int, int]:
    """Return numbers that change if this process loads more."""
    return len(sys.modules), len(_opened) + len(_sought)


def look_anew() -> None:
    """Let Python look at folders of modules again; two threads at once would break its own cache."""
    with _looking:
        while True:
            with suppress(RuntimeError):  # a thread of another audit looks into a new folder meanwhile
                return importlib.invalidate_caches()


def loaded(folder: str) -> LoadedCode:
    """Return what this process has loaded; modules that are not installed may be in ``folder``."""
    look_anew()
    places, owners = module_places(folder), owners_of_modules()
    files: dict[str, str] = {}
    installed: set[str] = set()
    origins = set[Path]()
    for name, module in sys.modules.copy().items():  # not list(): other threads import meanwhile
        top, origin = name.partition(".")[0], _origin_of(module)
        if origin is None or top == "opacc_ray":
            continue
        is_user = _is_of_user(origin) or not (top in owners or top.startswith("_") or top in sys.stdlib_module_names)
        if is_user:  # one that was put next to installed ones by hand has no version
            file = Path(origin)
            origins.add(file)
            files[_key(file, name, places)] = digest_of_file(file)
        elif top not in TOOLS and top in owners and not top.startswith("_"):
            installed.add(top)
    for file in {_source(Path(path)) for path in _opened.copy()} - origins:
        if _counts(file, places):
            files[_key(file, None, places)] = digest_of_file(file)
    absent = [f"{name.replace('.', '/')}.py" for name in _sought.copy() if name not in sys.modules]
    files |= {key: ABSENT for key in absent if _locate(key, places) is None}  # a change if it is there one day
    versions = {name: library_version(name) for name in sorted(installed)}
    return LoadedCode(files=dict(sorted(files.items())), libraries=versions)


def _origin_of(module: object) -> str | None:
    names = getattr(module, "__dict__", {})  # not by attributes, which a module may make when it is asked
    origin = getattr(names.get("__spec__"), "origin", None) or names.get("__file__")
    return origin if isinstance(origin, str) and os.sep in origin else None


def _source(file: Path) -> Path:
    """Return the source file of a cached one."""
    with suppress(ValueError):
        return Path(importlib.util.source_from_cache(str(file)))
    return file


def _counts(file: Path, places: Iterable[str]) -> bool:
    """Return whether an opened file is the user's, rather than of the system, hidden or installed."""
    if is_installed(file):
        return False
    home = max((place for place in places if place != "/" and file.is_relative_to(place)), key=len, default="")
    inside = str(file).removeprefix(home)
    return not _HIDDEN.search(inside) and (bool(home) or not any(map(file.is_relative_to, _SYSTEM)))


def _key(file: Path, module: str | None, places: Sequence[str]) -> str:
    """Return the name by which a file is found again."""
    inside = [file.relative_to(place).as_posix() for place in places if file.is_relative_to(place)]
    if module is not None:
        folder = module.split(".")
        inside.insert(0, "/".join([*folder[:-1], *([folder[-1]] if file.stem == "__init__" else []), file.name]))
    return next((key for key in inside if _locate(key, places) == file), str(file))


def _locate(key: str, places: Sequence[str]) -> Path | None:
    """Return the file of a key, as an import or a look at the folders would find it."""
    suffix = next((suffix for suffix in sorted(all_suffixes(), key=len)[::-1] if key.endswith(suffix)), None)
    name = key.removesuffix(suffix or "").removesuffix("/__init__").replace("/", ".")
    if suffix and all(map(str.isidentifier, name.split("."))):
        found = find_module(name, places)
        return Path(found.origin) if found and found.has_location and found.origin else None
    return next((file for place in places if (file := Path(place, key)).exists()), None)


def record(folder: Store, modules: str, before: LoadedCode | None = None) -> LoadedCode:
    """Write what this process has loaded into a folder of features, and return it.

    Files that it had loaded ``before`` are in its memory as they were then. Raises DataError if another process has
    computed features there with another file or version.
    """
    own = loaded(modules)
    if before is not None:
        own = own.model_copy(update={"files": own.files | before.files})
    if what := _difference(records(folder), [own]):
        raise DataError(
            f"{what} since this run began, or is another on {platform.node()}: give all workers the same files "
            "and versions, and run the same command again"
        )
    folder.write(f"loaded-{digest_of(own.to_dict())[:16]}.json", own.to_bytes())
    return own


def _common(code: CodeContent, other: CodeContent) -> CodeContent:
    """Return the files and libraries that another process had as well."""
    return CodeContent(
        files={name: code.files[name] for name in code.files.keys() & other.files.keys()},
        libraries={name: code.libraries[name] for name in code.libraries.keys() & other.libraries.keys()},
    )


def _difference(before: Sequence[CodeContent], now: Sequence[CodeContent]) -> str | None:
    """Return what differs of all that was loaded both times."""
    found = (changes(_common(old, new), _common(new, old)) for old in before for new in now)
    return next(filter(None, found), None)


# -- where features are reused -----------------------------------------------------------------------------------


def records(folder: Store) -> list[LoadedCode]:
    """Return what the processes that computed a folder's features had loaded."""
    keys = _record_keys(folder)
    contents = zip(keys, folder.read_many(keys), strict=True)
    return [LoadedCode.from_bytes(content, folder.uri_of(key)) for key, content in contents]


def has_records(folder: Store) -> bool:
    """Return whether a folder of features says what had been loaded."""
    return bool(_record_keys(folder))


def copy_records(source: Store, target: Store) -> None:
    """Copy the records of features that are taken from another folder."""
    keys = _record_keys(source)
    target.write_many(zip(keys, source.read_many(keys), strict=True))


def _record_keys(folder: Store) -> list[str]:
    return [entry.key for entry in folder.list("loaded-")]


def here(files: Iterable[str], libraries: Iterable[str], folder: str) -> CodeContent:
    """Return these files and libraries as they are on this machine; nothing is imported."""
    look_anew()
    places = module_places(folder)
    located = {key: _locate(key, places) for key in files}
    return CodeContent(
        files={key: ABSENT if file is None else digest_of_file(file) for key, file in located.items()},
        libraries={name: _version(name, places) for name in libraries},
    )


def _version(name: str, places: Sequence[str]) -> str:
    """Return the version of a library, or the file of the user's that is imported in its place."""
    found = find_module(name, places)
    if found is not None and found.has_location and found.origin and not is_installed(Path(found.origin)):
        return str(found.origin)
    return library_version(name)


def outdated(folder: Store, modules: str) -> str | None:
    """Return what has changed since features were computed, as the begin of a sentence; None if nothing has.

    What is not on this machine is named in a warning. Without torch, it is no worker, and only files are compared.
    """
    for before in records(folder):
        now = here(before.files, before.libraries, modules)
        if now.libraries.get("torch") == ABSENT:
            now = now.model_copy(update={"libraries": before.libraries})
        both = [(own, getattr(before, kind)) for kind, own in now if kind in ("files", "libraries")]
        lost = [name for own, old in both for name, value in own.items() if value == ABSENT != old[name]]
        if lost:
            more = f" and {counted(len(lost) - 1, 'other')}" if len(lost) > 1 else ""
            log.warning("%s%s made %s and cannot be found here, so it is not compared", lost[0], more, folder.uri)
        there = CodeContent(
            files={name: value for name, value in now.files.items() if name not in lost},
            libraries={name: value for name, value in now.libraries.items() if name not in lost},
        )
        if what := changes(_common(before, there), there):
            return what
    return None


def is_same(first: Store, second: Store) -> bool:
    """Return whether two folders of features were computed with the same code, as far as both loaded it."""
    return _difference(records(first), records(second)) is None


def confirm(folder: Store, modules: str) -> None:
    """Raise DataError if workers computed features with another file or version than those on this machine."""
    if what := outdated(folder, modules):
        raise DataError(
            f"{what}, if the workers are compared with {platform.node()}: give all the same files and versions, "
            "and run the same command again"
        )
