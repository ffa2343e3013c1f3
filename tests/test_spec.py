"""Specs: a wrong key or value gives one sentence with the key, the value and the fix."""

from pathlib import Path
from typing import Any

import pytest

from opacc_ray.errors import SpecError
from opacc_ray.spec import load_function, load_spec, parse_spec


def content(**changes: Any) -> dict[str, Any]:
    return {
        "name": "audit",
        "pool": {"uri": "s3://lake/pool", "format": "images"},
        "model": {"factory": "models:net"},
        "sample": {"method": "ces", "budget": 100},
        "output": "s3://audits",
    } | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampel": {}}, r"unknown key 'sampel' \(value {}\); did you mean 'sample'\?"),
        ({"pool": {"url": "x", "format": "images"}}, r"unknown key 'pool.url' \(value \"x\"\); did you mean 'uri'"),
        ({"extract": {"batchsize": 3}}, "did you mean 'batch_size'"),
        ({"pool": {"format": "images"}}, "key 'pool.uri' is missing"),
        ({"pool": {"uri": "x", "format": "zip"}}, "pool.format: .*'images' or 'npy'.* \\(value \"zip\"\\)"),
        ({"extract": {"actors": 0}}, r"extract.actors: give at least 1, or auto \(value 0\)"),
        ({"extract": {"batch_size": "many"}}, r"extract.batch_size: .*integer.* \(value \"many\"\)"),
        ({"model": {"factory": "no colon"}}, "model.factory: write module:function"),
        ({"model": {"factory": "a:b", "sha256": "beef"}}, "model.sha256: give the 64 hexadecimal digits"),
        ({"name": "a/b"}, "name: use letters, digits"),
        ({"sample": {"method": "cse"}}, "sample: there is no method 'cse'; did you mean"),
        ({"sample": {"method": "ces", "section": 9}}, "no parameter 'section'; did you mean 'sections'"),
        ({"sample": {"method": "ces", "budget": 0}}, "budget=0: give a whole number"),
        ({"model": {"factory": "a:b", "task": "regression"}, "sample": {"method": "css"}}, "no confidence"),
        ({"extract": {"features": ["output"]}}, "'ces' needs hidden.*add hidden to extract.features"),
    ],
)
def test_refusal(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        parse_spec(content(**changes), "spec.yaml")
    assert str(caught.value).startswith("spec.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "holds list"),
        ("", "holds NoneType"),
        ("!!python/object:os.system {}", "not YAML"),
    ],
)
def test_file_that_is_no_spec(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        load_spec(path)


def test_missing_file() -> None:
    with pytest.raises(SpecError, match="there is no spec at /nowhere"):
        load_spec("/nowhere.yaml")


def test_defaults_extract_what_comes_with_the_forward_pass() -> None:
    assert parse_spec(content(), "spec").features() == ("hidden", "output", "confidence", "prediction")
    regression = parse_spec(content(model={"factory": "a:b", "task": "regression"}), "spec")
    assert regression.features() == ("hidden", "output", "prediction")


def test_identity_leaves_out_where_and_how_fast() -> None:
    here = parse_spec(content(extract={"actors": 1}), "spec")
    there = parse_spec(content(extract={"actors": 9, "start_timeout": 5}, output="s3://elsewhere"), "spec")
    assert here.identity() == there.identity()
    assert here.identity() != parse_spec(content(seed=1), "spec").identity()
    assert here.identity() != parse_spec(content(extract={"batch_size": 7}), "spec").identity()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "model.factory: 'no_such_module:f' cannot be imported"),
        ("os:no_such", "module 'os' has no 'no_such'"),
        ("os:sep", "is a str, not a function"),
    ],
)
def test_function_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_function(name, "model.factory")
