"""`opacc methods` and `opacc spec`: a spec that parses, every method, every parameter."""

import json
import re

import pytest
import yaml

from opacc_ray.cli.explanations import SpecTemplate, list_methods
from opacc_ray.cli.main import main
from opacc_ray.samplers import METHODS
from opacc_ray.spec import parse_spec


def test_template_parses() -> None:
    spec = parse_spec(yaml.safe_load(SpecTemplate().yaml), "template")
    assert (spec.sample.method, spec.sample.budget, spec.sample.parameters) == ("neyman", 100, {})


def test_template_with_every_line_in_force_parses_too() -> None:
    text = re.sub(r"^# (?=\w+:)", "  ", SpecTemplate().yaml.partition("\n\n")[2], flags=re.MULTILINE)
    spec = parse_spec(yaml.safe_load(re.sub(r"^  (?=metrics|goal)", "", text, flags=re.MULTILINE)), "template")
    assert spec.pool.slices
    assert spec.metrics


def test_every_parameter_has_a_meaning() -> None:
    found = {item.name: item for item in list_methods().methods}
    assert list(found) == list(METHODS)
    assert [p.name for item in found.values() for p in item.parameters if not p.meaning] == []
    assert [p.name for p in found["css"].parameters] == ["auxiliary", "fractions", "allocation"]
    assert found["deepreduce"].stops_itself
    assert found["deepest"].needs == ["confidence"]


def test_commands_print_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec"]) == 0
    assert capsys.readouterr().out == SpecTemplate().yaml
    assert main(["methods", "css"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("  fractions: [0.8, 0.1, 0.1]  share of the pool in each")
    assert main(["methods", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["methods"]) == len(METHODS)
    assert main(["methods", "cse"]) == 2
    assert "did you mean 'css'" in capsys.readouterr().err
