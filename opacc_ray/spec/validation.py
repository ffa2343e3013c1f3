"""YAML from others, read within limits and validated; each error is one sentence."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ValidationError

from opacc_ray.documents import first_problem
from opacc_ray.errors import SpecError, shortened
from opacc_ray.lake.formats import refuse_workbook

Model = TypeVar("Model", bound=BaseModel)

MAX_TEXT, MAX_NODES = 1 << 18, 50_000
"""Characters and values that a YAML file may hold."""

_TYPE_NAMES = {list: "list", str: "text", bool: "boolean", int: "number", float: "number"}


def function_name(value: str) -> str:
    """Return a name in the form ``module:function``; raises ValueError for any other."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("write module:function, such as mypkg.models:lenet5")
    return value


FunctionName = Annotated[str, AfterValidator(function_name)]
"""A user's function as ``module:function``."""


def read_yaml(path: str | Path, what: str = "spec") -> Any:
    """Return the content of a YAML file, which errors call ``what``; raises SpecError if it is missing or not YAML."""
    place = f"the {what} {shortened(str(path))}"
    refuse_workbook(str(path))
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_TEXT + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no {what} at {shortened(str(path))}; give the path of a YAML file") from None
    except IsADirectoryError:
        raise SpecError(
            f"{shortened(str(path))} is a folder, not a {what}; to audit what is in it, name it as pool.uri in a spec "
            "(opacc spec > spec.yaml)"
        ) from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{place} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{place} cannot be read: {reason}; give the path of a YAML file") from None
    return parse_yaml(text, place)


def parse_yaml(text: str, place: str) -> Any:
    """Return the content of YAML text, which errors call ``place``; aliases count as all that they expand to.

    Raises SpecError if it is not YAML, larger or deeper than any spec, or has a key twice.
    """
    if len(text) > MAX_TEXT:
        raise SpecError(f"{place} has more than {MAX_TEXT} characters, so it is not a spec; check the path")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        pending, found = [node], 0
        while pending:
            found += 1
            pending += _parts(pending.pop())
            if found > MAX_NODES:
                raise SpecError(f"{place} has more than {MAX_NODES} values, with aliases expanded; shorten it")
        _check_keys(node, place)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise SpecError(f"{place} is not YAML{_where(error)}") from None
    except RecursionError:
        raise SpecError(f"{place} is nested too deeply to be read") from None
    except SpecError:
        raise
    except (ValueError, OverflowError, TypeError, AttributeError) as error:  # an impossible number or date
        raise SpecError(f"{place} has a value that cannot be read: {shortened(str(error))}") from None


def _where(error: yaml.YAMLError) -> str:
    """Return line, column and cause of an error, with what to do about a tab."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return f": {shortened(str(error))}"
    remedy = "a tab; indent with spaces" if "'\\t'" in problem else shortened(problem)
    return f" in line {mark.line + 1}, column {mark.column + 1}: {remedy}"


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _check_keys(node: yaml.Node, place: str) -> None:
    """Raise SpecError if a section has a key twice: the YAML parser would silently take the last one."""
    lines: dict[str, int] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            shown = shortened(repr(key.value))
            raise SpecError(f"{place} has the key {shown} twice, in lines {lines[key.value]} and {line}; remove one")
        lines[key.value] = line
    for part in _parts(node):
        _check_keys(part, place)


def validated(kind: type[Model], content: Any, source: str) -> Model:
    """Return ``content`` as an object of ``kind``; raises SpecError in one sentence that names ``source``."""
    if content is None:
        raise SpecError(f"{source} is empty; `opacc spec` prints one to start from")
    if not isinstance(content, dict):
        raise SpecError(
            f"{source} holds a {_TYPE_NAMES.get(type(content), 'value')}, not keys and values such as name: digits"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise SpecError(f"{source}: {first_problem(kind, error)}") from None


def merged(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return two mappings merged section by section; where both have a value, that of the second one."""
    both = {
        key: merged(content[key], value)
        for key, value in changes.items()
        if isinstance(value, Mapping) and isinstance(content.get(key), Mapping)
    }
    return {**content, **changes, **both}


def read_share(text: str) -> tuple[str | None, float]:
    """Read ``0.9``, ``±3 %`` or ``recall@defect 0.9``: a metric if there is one, and a share between 0 and 1.

    Raises ValueError with the share that is probably meant, or nothing.
    """
    found = re.fullmatch(r"\s*(?:(\S.*?)\s+)?±?\s*(\d*\.?\d+(?:[eE]-?\d+)?)\s*(%?)\s*", text)
    number = float(found[2]) / (100 if found[3] else 1) if found else 0.0
    if found is None or not 0 < number < 1:
        raise ValueError(f"; {number:g} % is {number / 100:g}" if 1 <= number < 100 else "")
    return found[1], number


def share_of(value: Any) -> Any:
    """Return the share that a text in percent means: ``85 %`` -> 0.85; other values stay."""
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
    if not isinstance(value, bool) and isinstance(value, int | float) and 1 < value <= 100:
        raise ValueError(f"a goal is a share: write {value / 100:g} or {value:g} %")
    return float(percent[1]) / 100 if percent else value
