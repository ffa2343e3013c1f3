"""The user's own code: load the functions of a spec, and find the files that they need without running them.

A module that is not installed is the user's: a file, or a package with all of its files. Import statements are
followed; imports by a name made at run time are not found. Whole packages are sent to a cluster (:func:`users_files`).
Only the files that import statements reach are part of a run's identity (:func:`sources_of`).
"""

import ast
import importlib
import os
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from opacc_ray.errors import SpecError, meant, shortened
from opacc_ray.spec.audit_spec import Spec

MAX_BYTES = 100 << 20
"""Most bytes of the modules of a spec: a cluster gets code, not weights or data."""

_LEFT_OUT = re.compile(r"(^|/)(\.|__pycache__(/|$))")

_PARSING = threading.Lock()
"""Lock for parsing: in Python 3.11, two threads at once may raise SystemError (gh-106905)."""


class Sources(NamedTuple):
    """The code of some modules."""

    files: dict[str, Path]  # the user's, by path below a folder of modules
    installed: set[str]  # top-level names of installed modules that are used


def modules_of(spec: Spec) -> list[str]:
    """Return the modules of the functions in a spec, without this package, timm and transformers."""
    named = (spec.model.factory, spec.model.function, spec.transform)
    return [name.partition(":")[0] for name in named if name and not re.match(r"timm:|hf:|opacc_ray\b", name)]


def users_files(modules: Iterable[str], folder: str) -> dict[str, Path]:
    """Return the files of modules and of their imports, except installed ones and this package, unless it is named.

    ``folder`` is searched last. Keys are paths below a folder of modules.

    Raises SpecError if a module does not exist or is in a zip, or the files are larger than code.
    """
    places = module_places(folder)
    files: dict[str, Path] = {}
    pending = list(dict.fromkeys(name.partition(".")[0] for name in modules))
    for name in pending:
        if _find(name, places) is None:
            raise SpecError(f"there is no module {name!r}; run this in the folder that holds it, or install it")
    seen = {"", "opacc_ray", *pending}
    while pending:
        own = dict(_files(pending.pop(), places))
        files |= own
        imported = {name.partition(".")[0] for inside, file in own.items() for name in _imported(file, inside)}
        pending += sorted(imported - seen)
        seen |= imported
    sizes = {name: file.stat().st_size for name, file in files.items()}
    if sum(sizes.values()) > MAX_BYTES:
        raise SpecError(
            f"the packages of the spec have {sum(sizes.values()) >> 20} MiB, with the largest file "
            f"{max(sizes, key=sizes.__getitem__)}; move weights and data out of them"
        )
    return files


def sources_of(modules: Iterable[str], folder: str) -> Sources:
    """Return the files of modules and of all modules that they import; missing modules are skipped.

    ``folder`` is searched last.
    """
    places = module_places(folder)
    found = Sources({}, set())
    pending = list(modules)
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name.partition(".")[0] in ("", "opacc_ray"):
            continue
        seen.add(name)
        pending.append(name.rpartition(".")[0])
        if (one := _file_of(name, places, found.installed)) is not None:
            inside, file = one
            found.files[inside] = file
            with suppress(SpecError):  # running it raises the error
                pending += _imported(file, inside)
    return found


def module_places(folder: str) -> list[str]:
    """Return the folders that hold modules, in the order in which they are searched."""
    return [*filter(None, sys.path), folder]


def _file_of(name: str, places: Sequence[str], installed: set[str]) -> tuple[str, Path] | None:
    """Return the file of a user's module, with its path below the folder of modules; None for other names."""
    parts = name.split(".")
    top = _find(parts[0], places)
    if top is not None and all(map(is_installed, _places_of(top))):
        installed.add(parts[0])
        return None
    found = find_module(name, places)
    if found is None or not found.has_location or not found.origin:
        return None
    file = Path(found.origin)
    last = ["__init__"] if found.submodule_search_locations is not None else []
    return "/".join([*parts, *last]) + "".join(file.suffixes), file


def find_module(name: str, places: Sequence[str]) -> ModuleSpec | None:
    """Find a module without running it or its parents."""
    first, *rest = name.split(".")
    found = _find(first, places)
    for part in rest:
        if found is None:
            return None
        found = PathFinder.find_spec(part, list(found.submodule_search_locations or ()))
    return found


def read_code(file: Path) -> bytes:
    """Return the bytes of a file, which may be in a zip on the module path."""
    archive = next((place for place in file.parents if place.is_file()), None)
    if archive is None:
        return file.read_bytes()
    with ZipFile(archive) as members:
        return members.read(file.relative_to(archive).as_posix())


def _imported(file: Path, inside: str) -> Iterator[str]:
    """Yield dotted names that a file imports, including functions and values; raise SpecError if it is not Python.

    ``inside`` is the path of the file below a folder of modules; its folder is the package of relative imports.
    """
    if file.suffix != ".py":
        return
    try:
        yield from _imported_by(read_code(file), tuple(inside.split("/")[:-1]))
    except (SyntaxError, ValueError) as error:
        raise SpecError(f"{file} is not valid Python: {shortened(str(error))}") from None


@lru_cache(maxsize=128)
def _imported_by(code: bytes, package: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dotted names that a file of a package imports; many audits of one process have the same files."""
    with _PARSING:
        tree = ast.parse(code)
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            whole = ".".join([*above, *([node.module] if node.module else [])])
            names += [whole, *(f"{whole}.{alias.name}" for alias in node.names if alias.name != "*")]
    return tuple(names)


def _find(name: str, places: Sequence[str]) -> ModuleSpec | None:
    """Find a top-level module without running it, in some places or by an installed finder."""
    if name in sys.builtin_module_names:
        return ModuleSpec(name, None)
    if (found := PathFinder.find_spec(name, list(places))) is not None:
        return found
    others = [finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_spec")]
    return next((found for finder in others if (found := finder.find_spec(name, None)) is not None), None)


def _places_of(found: ModuleSpec) -> list[Path]:
    """Return the file of a module, or the folders of a package; nothing for a module in Python itself."""
    if found.submodule_search_locations is not None:
        return list(map(Path, found.submodule_search_locations))
    return [Path(found.origin)] if found.has_location and found.origin else []


def _files(name: str, places: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the files of a top-level module, unless it is installed."""
    found = _find(name, places)
    for place in _places_of(found) if found else ():
        if not is_installed(place):
            if not place.exists():
                raise SpecError(f"module {name!r} is in {place.parent}, and a cluster gets only files; unpack it")
            for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
                inside = file.relative_to(place.parent).as_posix()
                if file.is_file() and not _LEFT_OUT.search(inside):
                    yield inside, file


def is_installed(path: Path) -> bool:
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return not _installed_folders().isdisjoint(path.resolve().parents)


@cache
def _installed_folders() -> frozenset[Path]:
    return frozenset(
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
    )


def see_modules(folder: str) -> None:
    """Add a folder to the module path, after installed packages."""
    if folder not in sys.path:
        sys.path.append(folder)


def load_function(name: str, key: str) -> Any:
    """Return the function ``module:function`` of the spec's ``key``, also from a module in the current folder."""
    see_modules(os.getcwd())
    module, _, function = name.partition(":")
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        remedy = f"{module} imports it, so install it here and on the workers"
        if error.name is None or f"{module}.".startswith(f"{error.name}."):
            remedy = "run where the module is on the path"
        raise SpecError(f"{key}: {name!r} cannot be imported ({shortened(str(error))}); {remedy}") from None
    except (Exception, SystemExit) as error:  # sys.exit in a script must not end this command
        failure = SpecError(f"{key}: importing {module!r} raised {type(error).__name__}: {shortened(str(error))}")
        failure.details = traceback.format_exc()
        raise failure from None
    found = getattr(imported, function, None)
    if found is None:
        known = [name for name, value in vars(imported).items() if callable(value) and not name.startswith("_")]
        hint = meant(function, known, "write module:function with a function of that module")
        raise SpecError(f"{key}: module {module!r} has no {function!r}; {hint}")
    if not callable(found):
        raise SpecError(f"{key}: {name!r} is a {type(found).__name__}, not a function")
    return found
