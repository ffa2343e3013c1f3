"""Rules and dashboard ask for metrics that are exported, in PromQL that parses, and name commands that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from infra_files import INFRA, check_call, commands, documents

from opacc_ray.cli.main import application
from opacc_ray.fleet.exposition import METRICS

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
    assert {call[0] for call in calls} == {"next", "report", "budget", "alerts", "runs", "fleet", "metrics"}
    for call in calls:
        check_call(application, call)


def test_panels_do_not_overlap_and_have_one_source() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24  # Grafana's grid
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {"${source}"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    assert "${source}" in {f"${{{variable['name']}}}" for variable in DASHBOARD["templating"]["list"]}


FIRE: dict[str, tuple[dict[str, str], dict[str, int]]] = {
    "OpaccAuditFailed": ({"opacc_audit_failed": "0 1 1 0"}, {"0m": 0, "10m": 1, "15m": 0}),
    "OpaccExtractionStalled": (
        {"opacc_shards": "30x30", "opacc_shards_done": "10x3 20x13 25x5"},
        {"60m": 0, "75m": 0, "80m": 1, "90m": 0},
    ),
    "OpaccLabelsAwaited": ({"opacc_labels_awaited": "5x864 0x5"}, {"71h": 0, "72h": 1, "73h": 0}),
    "OpaccAccuracyLow": ({"opacc_interval_high": "0.95 0.91 0.91 0.93"}, {"0m": 0, "10m": 1, "15m": 0}),
    "OpaccIntervalWide": (
        {"opacc_interval_width": "0.2x30", "opacc_labels_awaited": "5x3 0x13 5x5"},
        {"75m": 0, "80m": 1, "90m": 0},
    ),
    "OpaccFleetAlert": ({'opacc_alert{state="firing"}': "0 1 1 0"}, {"0m": 0, "10m": 1, "15m": 0}),
    "OpaccFleetSilent": ({"opacc_audit_seen_timestamp_seconds": "0x577 180000x5"}, {"47h": 0, "2885m": 1, "49h": 0}),
    "OpaccMetricsOld": (
        {"opacc_read_timestamp_seconds": "0+300x2 600x4 2100 2400 _x9"},
        {"30m": 0, "35m": 1, "40m": 0, "55m": 0, "60m": 1},
    ),
}
"""Samples of metrics, one in five minutes, and how many alerts there are after a while, by rule."""


@pytest.mark.processes
def test_every_rule_fires_and_resolves(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt install prometheus")
    assert list(FIRE) == [rule["alert"] for rule in RULES]
    tests = [
        {
            "interval": "5m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
                    "eval_time": time,
                    "exp_samples": [{"labels": "{}", "value": number}],
                }
                for time, number in firing.items()
            ],
        }
        for alert, (series, firing) in FIRE.items()
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(GROUPS))
    plan = {"rule_files": ["rules.yaml"], "evaluation_interval": "5m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(plan))
    done = subprocess.run([promtool, "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
