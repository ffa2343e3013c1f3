"""The user's own code: which files the functions of a spec need, found without running any of them.

Each module that the spec names is looked for as Python would, what is installed first. A module that is not installed
is the user's: a file, or a package with all that lies in it. What those import is looked for in turn, by the import
statements that they hold; one that is imported by a name made at run time must be named.

What is sent to a cluster is whole packages (:func:`users_files`). What decides features is less: the files that import
statements reach (:func:`sources_of`), so that a README or an unrelated module beside them decides nothing.
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
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from opacc_ray.errors import SpecError, shortened
from opacc_ray.spec.audit_spec import Spec

MAX_BYTES = 100 << 20
"""Most that the modules of a spec may hold: what is sent to a cluster is code, not weights or data."""

_LEFT_OUT = re.compile(r"(^|/)(\.|__pycache__(/|$))")
_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

_PARSING = threading.Lock()
"""Held while a file is parsed: in Python 3.11 two threads that do so may end with a SystemError (gh-106905)."""


class Sources(NamedTuple):
    """The code that modules are made of."""

    files: dict[str, Path]  # the user's, by path below a folder of modules: where each lies
    installed: set[str]  # top-level names of what is installed, and named or imported


def modules_of(spec: Spec) -> list[str]:
    """Names of the modules whose functions a spec names, without those of this package, timm and transformers."""
    named = (spec.model.factory, spec.model.function, spec.transform)
    return [name.partition(":")[0] for name in named if name and not re.match(r"timm:|hf:|opacc_ray\b", name)]


def users_files(modules: Iterable[str], folder: str) -> dict[str, Path]:
    """The files of modules and of what they import, as far as those are not installed, nor of this package.

    Parameters
    ----------
    modules : names, such as mypkg.models; opacc_ray, if it is named here, is as any other
    folder : where modules are looked for that are nowhere else, the current one

    Returns
    -------
    dict
        By the path that each file has below a folder of modules: where it lies.

    Raises
    ------
    SpecError
        There is no such module, or they hold more than code does.
    """
    places = [*(place for place in sys.path if place), folder]
    files: dict[str, Path] = {}
    pending = list(dict.fromkeys(name.partition(".")[0] for name in modules))
    for name in pending:
        if _find(name, places) is None:
            raise SpecError(f"there is no module {name!r}; run this in the folder that holds it, or install it")
    seen = {"opacc_ray", *pending}
    while pending:
        own = dict(_files(pending.pop(), places))
        files |= own
        imported = {name for file in own.values() if file.suffix == ".py" for name in _imports(file)}
        pending += sorted(imported - seen)
        seen |= imported
    _check_size(files)
    return files


def sources_of(modules: Iterable[str], folder: str) -> Sources:
    """The files of modules, and of those that they import in turn; one that is nowhere is passed over.

    Parameters
    ----------
    modules, folder : as in :func:`users_files`
    """
    places = [*(place for place in sys.path if place), folder]
    found = Sources({}, set())
    pending = list(modules)
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name.partition(".")[0] in ("", "opacc_ray"):
            continue
        seen.add(name)
        parent, _, _ = name.rpartition(".")
        if parent:
            pending.append(parent)
        for file, inside in _file_of(name, places, found.installed):
            found.files[inside] = file
            if file.suffix == ".py":
                package = name if file.name == "__init__.py" else parent
                pending += _imported_modules(file, package)
    return found


def _file_of(name: str, places: Sequence[str], installed: set[str]) -> Iterator[tuple[Path, str]]:
    """The file of a module of the user's and its path below the folder of modules; none if ``name`` is no module."""
    within: Sequence[str] = places
    parts = name.split(".")
    found = None
    for number in range(len(parts)):
        found = _find(".".join(parts[: number + 1]), within, nested=number > 0)
        if found is None:
            return
        if not number and _lies_installed(found):
            installed.add(parts[0])
            return
        within = list(found.submodule_search_locations or ())
    if found is not None and found.has_location and found.origin:
        file = Path(found.origin)
        last = ["__init__"] if found.submodule_search_locations is not None else []
        yield file, "/".join([*parts, *last]) + "".join(file.suffixes)


def _lies_installed(found: ModuleSpec) -> bool:
    """Whether a top-level module came from an installer, or is a part of Python's interpreter."""
    places = [found.origin] if found.has_location and found.origin else list(found.submodule_search_locations or ())
    return all(_is_installed(Path(place)) for place in places)


def _imported_modules(file: Path, package: str) -> Iterator[str]:
    """Dotted names that a file of a package may import; those that are no modules are functions and values."""
    try:
        tree = _parsed(file)
    except SpecError:  # whoever runs it says so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            whole = ".".join([*above, *([node.module] if node.module else [])])
            yield whole
            yield from (f"{whole}.{alias.name}" for alias in node.names if alias.name != "*")


def _find(name: str, places: Sequence[str], *, nested: bool = False) -> ModuleSpec | None:
    """Where a module lies, without running it: in one of the places, or where an installer has put a finder."""
    if name in sys.builtin_module_names:
        return ModuleSpec(name, None)
    found = PathFinder.find_spec(name, list(places))
    if found is not None or nested:
        return found
    others = [finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_spec")]
    return next((found for finder in others if (found := finder.find_spec(name, None)) is not None), None)


def _files(name: str, places: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The files of a top-level module, unless it is installed."""
    found = _find(name, places)
    if found is None:
        return
    if found.submodule_search_locations is None:
        if found.has_location and found.origin and not _is_installed(Path(found.origin)):
            yield Path(found.origin).name, Path(found.origin)
        return
    for place in map(Path, found.submodule_search_locations):
        if not _is_installed(place):
            for file in sorted(place.rglob("*")):
                inside = file.relative_to(place.parent).as_posix()
                if file.is_file() and not _LEFT_OUT.search(inside):
                    yield inside, file


def _is_installed(path: Path) -> bool:
    """Whether a file or folder came from an installer: that of Python, of this environment or of the system."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return str(path.resolve()).startswith(tuple(f"{place}/" for place in _INSTALLED))


def _imports(file: Path) -> Iterator[str]:
    """Top-level names that a file imports."""
    for node in ast.walk(_parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _parsed(file: Path) -> ast.Module:
    try:
        with _PARSING:
            return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise SpecError(f"{file} is no Python: {shortened(str(error))}") from None


def _check_size(files: dict[str, Path]) -> None:
    sizes = {name: file.stat().st_size for name, file in files.items()}
    if sum(sizes.values()) > MAX_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise SpecError(
            f"the modules of the spec hold {sum(sizes.values()) >> 20} MiB with what lies beside them, most of it "
            f"{largest}; keep weights and data apart from code"
        )


def see_modules(folder: str) -> None:
    """Let modules be imported from a folder of the user's, after all that is installed: it never hides a package."""
    if folder not in sys.path:
        sys.path.append(folder)


def load_function(name: str, key: str) -> Any:
    """The callable that ``module:function`` under the spec's ``key`` names, also of a module in the current folder."""
    see_modules(os.getcwd())
    module, _, function = name.partition(":")
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        reason, remedy = shortened(str(error)), _import_remedy(module, error)
        raise SpecError(f"{key}: {name!r} cannot be imported ({reason}); {remedy}") from None
    except (Exception, SystemExit) as error:  # a script that ends itself would end this command, as if all were done
        failure = SpecError(f"{key}: importing {module!r} raised {type(error).__name__}: {shortened(str(error))}")
        failure.details = traceback.format_exc()
        raise failure from None
    found = getattr(imported, function, None)
    if found is None:
        raise SpecError(f"{key}: module {module!r} has no {function!r}; {_function_meant(imported, function)}")
    if not callable(found):
        raise SpecError(f"{key}: {name!r} is a {type(found).__name__}, not a function")
    return found


def _function_meant(module: ModuleType, function: str) -> str:
    known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    near = get_close_matches(function, known, 1)
    return f"did you mean {near[0]!r}?" if near else "write module:function with a function of that module"


def _import_remedy(module: str, error: ImportError) -> str:
    if error.name is None or f"{module}.".startswith(f"{error.name}."):
        return "run where the module is on the path"
    return f"{module} imports it, so install it here and on the workers"
