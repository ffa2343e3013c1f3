"""The slices of a pool, and what it is a sample of: ``pool.slices`` and ``pool.sample_of``.

An item of ``slices`` makes these slices:

    camera                  a slice for each value of a column
    {age: [18, 30, 50]}     numbers, in slices between the cuts: < 18, 18 to 30, 30 to 50, >= 50
    {weather: [rain, fog]}  tags, of which a row may have several: for each, the rows that have it and the others
    folder                  a slice for each folder of files; {folder: 2}: for the first two levels of folders
    [camera, region]        a crossing of slices in the list: a slice for each pair of values

A crossing is named camera*region, the slices by two levels of folders "folder 2", and those of a tag "weather rain".

``sample_of`` states that the pool is a simple random sample: of 7542 examples, or of "more"; {video: 300} of 300
values of a column, with all their examples. The accuracy is then stated for all of these.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from opacc_ray.errors import SpecError, meant, shown
from opacc_ray.estimators.metrics import parse_metric
from opacc_ray.estimators.population import MORE, SampleOf
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH, CROSSING, FOLDER, SliceRule


def _listed(given: Any) -> Any:
    """Return ``given`` unchanged; raises ValueError unless it is a list of slices, each name once."""
    if given is None:
        return None
    if not isinstance(given, list) or not given:
        raise ValueError("give a list of slices, such as [camera, {age: [18, 30, 50]}, folder]")
    rules, crossings = rules_in(given), [item for item in given if isinstance(item, list)]
    known = [rule.name for rule in rules]
    for crossing in crossings:
        _check_crossing(crossing, known)
    names = [*known, *(CROSSING.join(sorted(crossing)) for crossing in crossings)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"the slices {twice!r} are given twice; remove one")
    return given


Slices = Annotated[list[str | dict[str, int | list[int | float] | list[str]] | list[str]], BeforeValidator(_listed)]
"""The value of ``pool.slices``."""


def _sampled(given: Any) -> Any:
    """Return ``given`` unchanged; raises ValueError unless it is a size, "more", or one of these for a column."""
    if given is None:
        return None
    try:
        [(cluster, total)] = given.items() if isinstance(given, dict) and len(given) == 1 else [(None, given)]
        SampleOf.parse(total, cluster)
    except SpecError as error:
        raise ValueError(f"{error}; or of clusters, as in {{video: {MORE}}}") from None
    if cluster is not None:
        _rule(cluster)
    return given


SampledFrom = Annotated[int | str | dict[str, int | str], BeforeValidator(_sampled)]
"""The value of ``pool.sample_of``."""


def rules_in(given: Sequence[Any]) -> list[SliceRule]:
    """Return the slices of a list that are not crossings; raises ValueError if one has another form."""
    return [rule for item in given if not isinstance(item, list) for rule in _rules(item)]


def names_in(given: Sequence[Any]) -> list[str]:
    """Return the names of all slices of a list, as :meth:`opacc_ray.parts.view.View.slicing` takes them."""
    named = ([CROSSING.join(item)] if isinstance(item, list) else [own.name for own in _rules(item)] for item in given)
    return [name for names in named for name in names]


def _rules(item: Any) -> list[SliceRule]:
    """Return the slices of an item that is no crossing: several for tags."""
    [value] = item.values() if isinstance(item, dict) and len(item) == 1 else [None]
    if not isinstance(value, list) or not value or not all(isinstance(tag, str) for tag in value):
        return [_rule(item)]
    [column] = item
    unfit = next((tag for tag in value if tag != tag.strip() or not tag or re.search(r"[|;,*]", tag)), None)
    if unfit is not None or len(set(value)) < len(value):
        why = "appears twice" if unfit is None else f"has {unfit!r}, which is no tag: a tag has no '|', ';', ',' or '*'"
        raise ValueError(f"{{{column}: {shown(value)}}} {why}")
    return [SliceRule(f"{_column(column)} {tag}", column, tag=tag) for tag in value]


def _rule(item: Any) -> SliceRule:
    if isinstance(item, str):
        return SliceRule(_column(item), item)
    if not isinstance(item, dict) or len(item) != 1:
        quotes = "; put it in quotes" if isinstance(item, int | float) else ""
        raise ValueError(f"{shown(item)} is no slice: give a column, {{COLUMN: [CUTS]}}, or a list of names{quotes}")
    [(column, value)] = item.items()
    if not isinstance(column, str):
        raise ValueError(f"{shown(column)} is no name of a column; put it in quotes")
    if column != FOLDER:
        return SliceRule(_column(column), column, _cuts(column, value))
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{{folder: {shown(value)}}}: give the number of levels, 1 or more")
    return SliceRule(f"{FOLDER} {value}", FOLDER, levels=value)


def _column(name: str) -> str:
    """Return the name of a column; raises ValueError if the name of its slices would mean something else."""
    if name != name.strip() or not name or CROSSING in name:
        raise ValueError(
            f"{name!r} cannot name slices, since it is empty, or has {CROSSING!r} or a space at an end; cross slices "
            "as a list, [camera, region], or rename the column"
        )
    if name in (BY_PREDICTION, BY_TRUTH):
        raise ValueError(f"{name!r} needs no slices: `opacc estimate RUN --by {name}` has its classes; remove it")
    try:
        parse_metric(name)
    except SpecError:
        return name
    raise ValueError(f"{name!r} is the name of a metric, so it cannot name slices; rename the column")


def _cuts(column: str, value: Any) -> tuple[float, ...]:
    cuts = value if isinstance(value, list) else []
    if not cuts or not all(map(_is_finite, cuts)):
        raise ValueError(f"{{{column}: {shown(value)}}}: give a list of one or more numbers, such as [18, 30, 50]")
    if sorted(set(cuts)) != cuts:
        raise ValueError(f"{{{column}: {shown(value)}}}: the cuts do not rise; write {shown(sorted(set(cuts)))}")
    return tuple(map(float, cuts))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _check_crossing(names: list[Any], known: Sequence[str]) -> None:
    """Raise ValueError unless a crossing has two or more different ones of the ``known`` slices."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        guess = meant(unknown, known, f"known are {', '.join(known) or 'none'}")
        raise ValueError(f"the crossing {shown(names)} has {shown(unknown)}, which is no slice of the list; {guess}")
    if len(set(names)) < max(len(names), 2):
        raise ValueError(f"the crossing {shown(names)} needs two or more different slices of the list")
