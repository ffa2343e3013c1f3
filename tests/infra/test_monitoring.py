"""Rules and dashboard ask for metrics that are exported, in PromQL that parses, and name commands that exist."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
from infra_files import INFRA, check_call, commands, documents

from opacc_ray.cli.main import application
from opacc_ray.extensions.fleet.exposition import METRICS

EXPORTED = set(METRICS)
DASHBOARD = json.loads((INFRA / "grafana-dashboard.json").read_text())
GROUPS = documents("kubernetes/base/rules.yaml")[0]["spec"]
RULES = [rule for group in GROUPS["groups"] for rule in group["rules"]]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]


def names(expression: Any) -> Iterator[str]:
    """Metrics that a parsed expression selects."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name
    for part in ("lhs", "rhs", "expr", "vector_selector"):
        if (found := getattr(expression, part, None)) is not None:
            yield from names(found)
    for argument in getattr(expression, "args", None) or ():
        yield from names(argument)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_parses_and_selects_what_is_exported(expression: str) -> None:
    found = set(names(promql_parser.parse(expression)))
    assert found == set(re.findall(r"\bopacc_\w+", expression))
    assert found
    assert found <= EXPORTED


def test_every_metric_is_shown() -> None:
    shown = {name for expression in EXPRESSIONS for name in re.findall(r"\bopacc_\w+", expression)}
    assert shown == EXPORTED


def test_rules_have_what_prometheus_asks_of_them() -> None:
    known = {"alert", "expr", "for", "labels", "annotations"}
    assert [
        rule["alert"] for rule in RULES if set(rule) - known or not re.fullmatch(r"\d+[smhdw]", rule.get("for", "0s"))
    ] == []
    calls = [call for rule in RULES for call in commands(rule["annotations"], "opacc")]
    assert {call[0] for call in calls} == {"next", "report", "budget", "runs", "fleet", "metrics"}
    for call in calls:
        check_call(application, call)
