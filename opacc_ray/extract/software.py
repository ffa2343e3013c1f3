"""The software of a process, which must be one in all processes that compute for a run.

opacc must agree in its version and in every byte of its Python files, wherever they are installed. Python must agree in
its minor version: patch releases mend faults and keep the meaning of code, and Ray itself refuses more than we do. The
libraries of the model and the user's files are compared when the model is loaded
(:func:`opacc_ray.extract.model_code.check_unchanged`).

Only the standard library is imported: these functions travel to nodes by value, since their opacc may have other
modules.
"""

import hashlib
import os
import platform
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def software() -> dict[str, str]:
    """Return the opacc and the Python of this process, by their names; without opacc if it is not installed."""
    found = find_spec("opacc_ray")
    if found is None or found.origin is None:
        return {}
    root, digest = Path(found.origin).parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return {
        "opacc": f"{import_module('opacc_ray').__version__} (code {digest.hexdigest()[:12]})",
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def difference(here: dict[str, str], there: dict[str, str]) -> str | None:
    """Return in words which software of another process is not that of the driver ``here``; None if all agrees."""
    for name, version in here.items():
        if name in there and there[name] != version:
            return f"has {name} {there[name]}, and the driver has {name} {version}"
    return None


def look(paths: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the keys of the paths that this node lacks, and its software."""
    return [key for key, path in paths.items() if not os.path.exists(path)], software()
