"""YAML that others wrote, read within limits and checked: one sentence for whatever is wrong with it."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from opacc_ray.documents import first_problem
from opacc_ray.errors import SpecError, shortened

Model = TypeVar("Model", bound=BaseModel)

MAX_TEXT, MAX_NODES = 1 << 18, 50_000
"""Characters and values that a YAML file may hold."""

_KINDS = {list: "list", str: "text", bool: "boolean", int: "number", float: "number"}


def read_yaml(path: str | Path, what: str = "spec") -> Any:
    """The content of a YAML file; raises SpecError if it is missing or no YAML. ``what`` names it in errors."""
    place = f"the {what} {shortened(str(path))}"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_TEXT + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no {what} at {shortened(str(path))}; give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{place} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{place} cannot be read: {reason}; give the path of a YAML file") from None
    return parse_yaml(text, place)


def parse_yaml(text: str, place: str) -> Any:
    """The content of YAML that others wrote; aliases are followed, and what they stand for is counted before.

    Raises
    ------
    SpecError
        It is no YAML, larger or deeper than any spec, or names a key twice; ``place`` names it.
    """
    if len(text) > MAX_TEXT:
        raise SpecError(f"{place} is longer than {MAX_TEXT} characters, which no spec is; check the path")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _is_larger(node, MAX_NODES):
            raise SpecError(f"{place} holds more than {MAX_NODES} values, aliases counted; write less")
        _check_keys(node, place)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise SpecError(f"{place} is not YAML: {shortened(str(error))}") from None
    except RecursionError:
        raise SpecError(f"{place} is nested too deeply to be read") from None
    except SpecError:
        raise
    except (ValueError, OverflowError, TypeError, AttributeError) as error:  # a number or date that cannot be
        raise SpecError(f"{place} holds a value that cannot be read: {shortened(str(error))}") from None


def _is_larger(node: yaml.Node, limit: int) -> bool:
    """Whether a document holds more than ``limit`` values, each alias counted as all that it stands for."""
    pending, found = [node], 0
    while pending and found <= limit:
        found += 1
        pending += _parts(pending.pop())
    return found > limit


def _parts(node: yaml.Node) -> list[yaml.Node]:
    """The keys and values of a section, or the items of a list."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _check_keys(node: yaml.Node, place: str) -> None:
    """Raise SpecError where a section names a key twice: YAML's reader would take the last one and say nothing."""
    lines: dict[str, int] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            shown = shortened(repr(key.value))
            raise SpecError(f"{place} names {shown} twice, in lines {lines[key.value]} and {line}; keep one")
        lines[key.value] = line
    for part in _parts(node):
        _check_keys(part, place)


def validated(kind: type[Model], content: Any, source: str) -> Model:
    """``content`` as an object of ``kind``; raises SpecError with one sentence, in which ``source`` names the place."""
    if content is None:
        raise SpecError(f"{source} is empty; `opacc spec --template` prints one to start from")
    if not isinstance(content, dict):
        raise SpecError(
            f"{source} holds a {_KINDS.get(type(content), 'value')}, not keys and values such as name: digits"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise SpecError(f"{source}: {first_problem(kind, error)}") from None
