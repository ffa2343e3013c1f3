"""The user's own code: which files the functions of a spec need, found without running any of them.

Each module that the spec names is looked for as Python would, what is installed first. A module that is not installed
is the user's: a file, or a package with all that lies in it. What those import is looked for in turn, by the import
statements that they hold; one that is imported by a name made at run time must be named.
"""

import ast
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from opacc_ray.errors import SpecError, shortened
from opacc_ray.spec.whole import Spec

MAX_BYTES = 100 << 20
"""Most that the modules of a spec may hold: what is sent to a cluster is code, not weights or data."""

_LEFT_OUT = re.compile(r"(^|/)(\.|__pycache__(/|$))")
_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


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


def _find(name: str, places: Sequence[str]) -> ModuleSpec | None:
    if name in sys.builtin_module_names:
        return ModuleSpec(name, None)
    return PathFinder.find_spec(name, list(places))


def _files(name: str, places: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The files of a top-level module, unless it is installed."""
    found = _find(name, places)
    if found is None:
        return
    if found.submodule_search_locations is None:
        if found.origin is not None and not _is_installed(Path(found.origin)):
            yield Path(found.origin).name, Path(found.origin)
        return
    for place in map(Path, found.submodule_search_locations):
        if not _is_installed(place):
            for file in sorted(place.rglob("*")):
                inside = file.relative_to(place.parent).as_posix()
                if file.is_file() and not _LEFT_OUT.search(inside):
                    yield inside, file


def _is_installed(path: Path) -> bool:
    return str(path.resolve()).startswith(tuple(f"{place}/" for place in _INSTALLED))


def _imports(file: Path) -> Iterator[str]:
    """Top-level names that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise SpecError(f"{file} is no Python: {shortened(str(error))}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _check_size(files: dict[str, Path]) -> None:
    sizes = {name: file.stat().st_size for name, file in files.items()}
    if sum(sizes.values()) > MAX_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise SpecError(
            f"the modules of the spec hold {sum(sizes.values()) >> 20} MiB with what lies beside them, most of it "
            f"{largest}; keep weights and data apart from code"
        )
