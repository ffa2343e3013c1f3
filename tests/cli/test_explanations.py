"""`opacc methods` and `opacc spec --template`: every method, every parameter, every key, with its meaning."""

import json
import re
from dataclasses import fields

import pytest
import yaml

from opacc_ray.cli.explanations import keys_of, list_methods, template_for
from opacc_ray.cli.main import main
from opacc_ray.errors import SpecError
from opacc_ray.samplers import METHODS
from opacc_ray.spec import parse_spec


def test_every_key_has_a_meaning() -> None:
    keys = {key.path: key for key in keys_of()}
    assert [path for path, key in keys.items() if not key.meaning] == []
    assert keys["extract.coverage.channels"].type == "mean, max"
    assert keys["extract.batch_size"].type == "whole number, ≥ 1"
    assert keys["model.classes"].type == "list of text"
    assert (keys["pool.uri"].required, keys["extract.actors"].default) == (True, "auto")


@pytest.mark.parametrize("method", METHODS)
def test_template_parses_to_the_defaults(method: str) -> None:
    spec = parse_spec(yaml.safe_load(template_for(method)), "template")
    assert (spec.sample.method, spec.sample.budget, spec.sample.parameters) == (method, 100, {})
    assert spec.model.model_dump(exclude={"factory"}, exclude_defaults=True) == {}


@pytest.mark.parametrize("method", METHODS)
def test_template_with_every_line_in_force_parses_too(method: str) -> None:
    text = re.sub(r"^# (?= *\w+:)", "", template_for(method).partition("\n\n")[2], flags=re.MULTILINE)
    given = yaml.safe_load(text)
    given["model"]["sha256"] = "0" * 64
    spec = parse_spec(given, "template")
    names = {item.name for item in fields(METHODS[method].Parameters)}  # type: ignore[arg-type]
    assert set(spec.sample.parameters) == names
    assert spec.reference is not None


def test_template_names_every_key() -> None:
    text = template_for("srs")
    assert [key.path for key in keys_of() if f" {key.path.rpartition('.')[2]}:" not in text.replace("\n", "\n ")] == []
    with pytest.raises(SpecError, match="no method 'cse'; did you mean 'css'"):
        template_for("cse")


def test_every_parameter_has_a_meaning() -> None:
    found = {item.name: item for item in list_methods().methods}
    assert list(found) == list(METHODS)
    assert [p.name for item in found.values() for p in item.parameters if not p.meaning] == []
    assert [p.name for p in found["css"].parameters] == ["auxiliary", "fractions", "allocation"]
    assert found["deepreduce"].stops_itself
    assert found["deepest"].needs == ["confidence"]


def test_commands_print_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "--template", "ces"]) == 0
    assert capsys.readouterr().out == template_for("ces")
    assert main(["methods", "css"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("  fractions: [0.8, 0.1, 0.1]  share of the pool in each")
    assert main(["methods", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["methods"]) == len(METHODS)
    assert main(["methods", "cse"]) == 2
    assert "did you mean 'css'" in capsys.readouterr().err
