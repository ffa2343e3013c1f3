"""Options that several commands share, and their types."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from opacc_ray.cli.command import RunName
from opacc_ray.errors import SpecError, shortened

if TYPE_CHECKING:
    from opacc_ray.labels.label_log import Score
    from opacc_ray.spec import Spec


class _BetweenZeroAndOne(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """A number between 0 and 1, both excluded."""

    def __init__(self, name: str, example: str) -> None:
        self.name, self.example = name, example

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        text = str(value)
        try:
            number = float(text.removeprefix("±"))
        except ValueError:
            number = float("nan")
        if not 0 < number < 1:
            self.fail(f"{text}: give a {self.name} between 0 and 1, such as {self.example}", param, context)
        return number


LEVEL = _BetweenZeroAndOne("confidence level", "0.95")
HALF_WIDTH = _BetweenZeroAndOne("half-width", "0.02")


class _SvgFile(click.ParamType):  # type: ignore[type-arg]
    """A file or object for a picture, which is SVG."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        text = str(value)
        if not text.lower().endswith(".svg"):
            self.fail(f"{text}: pictures are SVG; give a file whose name ends in .svg", param, context)
        return text


class _Method(click.ParamType):  # type: ignore[type-arg]
    """The name of a sampling method; a shell completes it, the registry checks it."""

    name = "method"

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from opacc_ray.samplers import METHODS

        return [CompletionItem(name) for name in METHODS if name.startswith(incomplete)]


METHOD = _Method()
SVG_FILE = _SvgFile()

RUN = RunName()

run_argument = click.argument("uri", metavar="RUN", type=RUN)
track_option = click.option("--track", metavar="NAME", help="Track to use (default: the main one).")


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an audit of a file of predictions, which has no spec."""
    for option in (
        click.option("--name", metavar="NAME", help="CSV: name of the audit (default: the file's name)."),
        click.option("--output", metavar="URI", help="CSV: folder of the run and its spec (default: ./audits)."),
        click.option("--method", type=METHOD, help="CSV: sampling method (default: neyman)."),
        click.option("--budget", type=int, metavar="N", help="CSV: number of labels."),
    ):
        function = option(function)
    return function


budget_option = click.option("--budget", type=int, metavar="N", help="Number of labels.")


def set_option(text: str) -> Callable[[Any], Any]:
    """Return the option that changes parameters of the method."""
    return click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help=text)


def statement_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of results."""
    for option in (
        score_option,
        conflict_option,
        click.option("--partial", is_flag=True, help="Treat missing labels as missing at random."),
        click.option("--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level of the intervals."),
    ):
        function = option(function)
    return function


RULE = click.Choice(["error", "majority", "latest"])
TOOL = click.Choice(["label-studio", "cvat", "ground-truth", "csv", "jsonl"])

conflict_option = click.option(
    "--conflict", type=RULE, help="Rule for labels that differ, this time only (default: that of the run)."
)
score_option = click.option(
    "--score",
    metavar="NAME=VALUE",
    help="Score of a regression, this time only: within=0.5 or error_scale=2.",
)


def score_for(spec: "Spec", given: str | None) -> "Score | None":
    """Return the score that ``--score NAME=VALUE`` gives; None if it is not given."""
    from opacc_ray.labels.label_log import Score
    from opacc_ray.spec import ScoreSpec, validated

    if given is None:
        return None
    if spec.model.task != "regression":
        raise SpecError(f"--score {given}: only a regression has a score; remove --score")
    stated = validated(ScoreSpec, parse_assignments([given], "--score"), "--score")
    return Score(stated.error_scale or spec.model.error_scale, stated.within)


def parse_assignments(given: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return the ``NAME=VALUE`` of an option as a mapping; values are YAML."""
    from opacc_ray.spec import parse_yaml

    parameters = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator:
            raise SpecError(f"{option} {shortened(item, 80)}: write NAME=VALUE, such as --set sections=20")
        parameters[name] = parse_yaml(value, f"{option} {shortened(item, 80)}: the value")
    return parameters
