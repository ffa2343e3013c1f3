"""The user's own functions, by the names that a spec gives them."""

import importlib
import os
import sys
import traceback
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from opacc_ray.errors import SpecError, shortened


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
