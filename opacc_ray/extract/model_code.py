"""Code that computes features: what import statements lead to, and what Python really loaded.

The digest of features covers the SHA-256 of the user's source files and the versions of the libraries that build and
run the model. A file counts if import statements lead to it from a function in the spec. None of the code is imported,
so a run has its name before any of it runs, also where it cannot run.

Import statements do not show all code that decides a feature: a name may be made at run time, a file executed, a
constant read from JSON. So a process that extracts records what is in ``sys.modules``, and which files the user's code
has opened for reading, which an audit hook sees:

    loaded-DIGEST.json      next to shards; one for each set of modules that a process had when it wrote a shard

Before features are reused, each file is looked up by its name and compared, and each version; nothing is imported for
that. Then stored examples are extracted again (:mod:`opacc_ray.extract.trial`). If either differs, all are extracted
again, as the next ``edition``.

A file's key is its path below a folder of modules, if Python finds it there, or else its whole path. Not seen are
variables of the environment, what is patched into modules at run time, answers of a network, and files that compiled
code reads by itself (safetensors, OpenCV, HDF5); the spot check is for these.
"""

import hashlib
import importlib
import importlib.util
import json
import logging
import os
import platform
import re
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib.machinery import all_suffixes
from importlib.metadata import distribution, distributions
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal
from zipfile import BadZipFile

from pydantic import Field

from opacc_ray.documents import Part, SealedDocument
from opacc_ray.errors import DataError, counted
from opacc_ray.lake.store_uris import Store
from opacc_ray.spec import Spec, modules_of, sources_of
from opacc_ray.spec.user_modules import find_module, is_installed, module_places, read_code

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

LIBRARIES = ("flax", "jax", "keras", "onnxruntime", "tensorflow", "timm", "torch", "torchvision", "transformers")
"""Libraries that build or run models; they count if the user's files import them."""

ABSENT = "not there"
"""In place of the digest of a file that cannot be read, and of the version of a library that is not installed."""

LIBRARY_OF = {"timm": "timm", "hf": "transformers"}  # package by kind of library's model, which names our extra


class CodeContent(Part):
    """Files and libraries of code."""

    files: dict[str, str] = Field(default={})  # source file of the user's -> SHA-256
    libraries: dict[str, str] = Field(default={})  # library that builds or runs the model -> version

    def only(self, files: Collection[str], libraries: Collection[str]) -> "CodeContent":
        """Return those of some files and libraries that it has."""
        return CodeContent(
            files={name: value for name, value in self.files.items() if name in files},
            libraries={name: value for name, value in self.libraries.items() if name in libraries},
        )


class Code(CodeContent):
    """The code that determines features, in addition to the spec and the data."""

    # counts how often stored features differed though files and libraries did not
    edition: int = Field(default=1, ge=1)


def code_of(spec: Spec) -> Code | None:
    """Return the current code of a spec; None if the pool holds features, so that none runs."""
    if spec.pool.holds_features:
        return None
    modules = modules_of(spec)
    found = sources_of(modules, os.getcwd())
    named = {name.partition(".")[0] for name in modules}
    libraries = {name for name in found.installed if name in LIBRARIES or name in named}
    if spec.model.function is None:
        libraries.add("torch")
    if spec.model.factory and (hub := hub_of(spec.model.factory)):
        libraries.add(LIBRARY_OF[hub[0]])
    return Code(files=_digests(found.files), libraries={name: library_version(name) for name in sorted(libraries)})


def check_unchanged(code: Code, spec: Spec, folder: str) -> None:
    """Raise DataError if a file or a library of the code differs on this machine.

    Modules that are not installed are in ``folder``.
    """
    there = sources_of(modules_of(spec), folder).files
    now = _digests({name: file for name, file in there.items() if name in code.files})
    other = next((name for name, found in now.items() if found != code.files[name]), None)
    if other is not None:
        raise DataError(
            f"{there[other]} on {platform.node()} is not the {other} that this run began with; give all workers "
            "the same files, and run the same command again"
        )
    for name, known in code.libraries.items():
        if (found := library_version(name)) != known:
            raise DataError(
                f"{name} on {platform.node()} is {found}, and {known} where this run began; install one version on all "
                "nodes, and run the same command again"
            )


def changes(before: CodeContent, now: CodeContent) -> str | None:
    """Return what has changed, as the begin of a sentence; None if nothing has."""
    files = [name for name in sorted(before.files | now.files) if before.files.get(name) != now.files.get(name)]
    if files:
        more = f" and {counted(len(files) - 1, 'other file')}" if len(files) > 1 else ""
        return f"{files[0]}{more} {'have' if more else 'has'} changed"
    other = before.libraries | now.libraries
    names = [name for name in sorted(other) if before.libraries.get(name) != now.libraries.get(name)]
    if names:
        was, is_now = (code.libraries.get(names[0], "not used") for code in (before, now))
        return f"{names[0]} has changed from {was} to {is_now}"
    return None


def hub_of(factory: str) -> tuple[str, str] | None:
    """Return the kind and the name of a library's model, or None for ``module:function``."""
    kind, _, name = factory.partition(":")
    return (kind, name) if kind in LIBRARY_OF else None


def _digests(files: Mapping[str, Path]) -> dict[str, str]:
    return {inside: digest_of_file(file) for inside, file in sorted(files.items())}


def json_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of JSON types."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest_of_file(file: Path) -> str:
    """Return the SHA-256 of a file, which may be in a zip on the module path; ``ABSENT`` if it cannot be read."""
    try:
        if file.is_file():  # of any size
            with file.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
        if not file.exists():  # a folder or a pipe does
            return hashlib.sha256(read_code(file)).hexdigest()
    except (OSError, KeyError, BadZipFile):
        pass
    return ABSENT


Places = tuple[tuple[Path, int], ...]  # folders of modules, and when they last changed


def owners_of_modules() -> dict[str, set[str]]:
    """Return the distributions of each installed top-level module."""
    owners: dict[str, set[str]] = {}
    for folder, changed in _places():
        for module, names in _owners(folder, changed).items():
            owners.setdefault(module, set()).update(names)
    return owners


def library_version(name: str) -> str:
    """Return the version of an installed library, by the name of its module; ``ABSENT`` without one."""
    places = _places()
    owners = {owner for folder, changed in places for owner in _owners(folder, changed).get(name, ())}
    return ", ".join(_release(owner, places) for owner in sorted(owners)) or ABSENT


def _places() -> Places:
    folders = map(Path, dict.fromkeys(sys.path))
    return tuple((folder, folder.stat().st_mtime_ns) for folder in folders if folder.exists())


@lru_cache(maxsize=64)
def _owners(folder: Path, changed: int) -> dict[str, set[str]]:
    """Return the distributions of each module that lies in one folder of ``sys.path``.

    ``importlib.metadata.packages_distributions`` reads all folders, for half a second and more, whenever one changes.
    """
    owners: dict[str, set[str]] = {}
    for found in distributions(path=[str(folder)]):
        modules = (found.read_text("top_level.txt") or "").split()
        for module in modules or _modules_in(found.read_text("RECORD") or ""):
            owners.setdefault(module, set()).add(found.name)
    return owners


def _modules_in(record: str) -> set[str]:
    """Return the top-level modules among the recorded files of a distribution: ``path,digest,size`` in each line."""
    paths = (line.rsplit(",", 2)[0].strip('"') for line in record.splitlines())
    return {path.partition("/")[0].partition(".")[0] for path in paths if path.endswith((".py", ".so", ".pyd"))} - {""}


@lru_cache(maxsize=1024)
def _release(owner: str, places: Places) -> str:
    """Return the version of a distribution, without the label of its build: a GPU build is the same code.

    One that was installed from a folder or a repository may change under its version: a digest of its files is added.
    """
    found = distribution(owner)
    number = found.version.partition("+")[0]
    if not found.read_text("direct_url.json"):
        return number
    lines = [line for line in (found.read_text("RECORD") or "").split() if "sha256" in line]
    own = sorted(line for line in lines if ".dist-info/" not in line and not line.startswith(".."))
    return f"{number} ({hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]})"


class LoadedCode(CodeContent, SealedDocument):
    """Code that was in memory of a process that computed features."""

    remedy: ClassVar[str] = "delete the folder and run the spec again"

    format: Literal["opacc-loaded/1"] = "opacc-loaded/1"


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
    folder.write(f"loaded-{json_digest(own.to_dict())[:16]}.json", own.to_bytes())
    return own


def _difference(before: Sequence[CodeContent], now: Sequence[CodeContent]) -> str | None:
    """Return what differs of all that was loaded both times."""
    pairs = ((old, new) for old in before for new in now)
    found = (changes(old.only(new.files, new.libraries), new.only(old.files, old.libraries)) for old, new in pairs)
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
        now = now.only(now.files.keys() - lost, now.libraries.keys() - lost)
        if what := changes(before.only(now.files, now.libraries), now):
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
