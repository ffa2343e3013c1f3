"""A fleet's file: which audits it makes, and one sentence for each mistake."""

from pathlib import Path
from typing import Any

import pytest

from opacc_ray.errors import SpecError
from opacc_ray.extensions.fleet.fleet_spec import Limit, load_fleet, parse_fleet

ROOT = Path(__file__).parents[3]


def content(**changes: Any) -> dict[str, Any]:
    """Two models on two pools; None removes a key."""
    whole = {
        "name": "weekly",
        "output": "s3://audits/",
        "spec": {"seed": 7, "sample": {"method": "srs", "budget": 50}, "model": {"classes": ["cat", "dog"]}},
        "models": {"small": {"factory": "user:small"}, "large": {"factory": "user:large"}},
        "pools": {"shop": {"uri": "s3://lake/shop/", "format": "images"}, "field": {"uri": "x", "format": "npy"}},
    }
    return {key: value for key, value in (whole | changes).items() if value is not None}


def test_every_pair_is_an_audit_with_the_keys_of_all() -> None:
    fleet = parse_fleet(content(), "f.yaml")
    assert [item.name for item in fleet.audits] == [
        "weekly-small-shop",
        "weekly-small-field",
        "weekly-large-shop",
        "weekly-large-field",
    ]
    spec = fleet.audits[3].spec
    assert (spec.model.factory, spec.model.classes, spec.pool.format) == ("user:large", ["cat", "dog"], "npy")
    assert (spec.seed, spec.sample.budget, spec.output) == (7, 50, "s3://audits/")


def test_overrides_change_single_keys_of_the_pairs_they_name() -> None:
    overrides = [
        {"models": ["large"], "spec": {"sample": {"budget": 80}, "transform": "user:resize"}},
        {"models": ["large"], "pools": ["field"], "spec": {"sample": {"budget": 90}}},
    ]
    audits = parse_fleet(content(overrides=overrides), "f.yaml").audits
    assert [item.spec.sample.budget for item in audits] == [50, 50, 80, 90]
    assert [item.spec.transform for item in audits] == [None, None, "user:resize", "user:resize"]
    assert {item.spec.sample.method for item in audits} == {"srs"}


def test_models_that_read_the_same_predictions_are_named(caplog: pytest.LogCaptureFixture) -> None:
    tables = {name: {"uri": f"s3://lake/{name}", "format": "features"} for name in ("web", "app")}
    columns = {"id": "id", "prediction": "old"}
    given = {
        "name": "desk",
        "output": "s3://audits/",
        "spec": {"sample": {"budget": 60}, "pool": {"columns": columns}},
        "models": {name: {"classes": ["a", "b"]} for name in ("old", "new")},
        "pools": tables,
        "overrides": [{"models": ["new"], "pools": ["app"], "spec": {"pool": {"columns": {"prediction": "new"}}}}],
    }
    parse_fleet(given, "fleet.yaml")
    [said] = caplog.messages
    assert said.startswith("fleet.yaml: these models read the same predictions")
    assert "for each: old and new on web; give each model its own" in said
    given["overrides"].append({"models": ["new"], "pools": ["web"], "spec": {"pool": {"uri": "s3://lake/new"}}})
    caplog.clear()
    parse_fleet(given, "fleet.yaml")
    parse_fleet(content(), "fleet.yaml")
    assert caplog.messages == []


def test_limits_of_alerts_may_be_a_models_a_pools_or_a_pairs_own() -> None:
    overrides = [
        {"models": ["large"], "alerts": {"min": {"accuracy": 0.98}}},
        {"pools": ["field"], "alerts": {"max_drop": None}},
        {"models": ["large"], "pools": ["field"], "spec": {"seed": 8}, "alerts": {"min": {"accuracy": 0.8}}},
    ]
    alerts = {"min": {"accuracy": 0.9}, "max_drop": {"accuracy": 0.02}}
    fleet = parse_fleet(content(alerts=alerts, overrides=overrides), "f.yaml")
    limits = [[(limit.kind, limit.limit) for limit in item.limits.all()] for item in fleet.audits]
    drop = ("max_drop", 0.02)
    assert limits == [[("min", 0.9), drop], [("min", 0.9)], [("min", 0.98), drop], [("min", 0.8)]]
    listed = LISTED | {"alerts": {"max_drop": {"accuracy": 0.1}}}
    alone = parse_fleet(content(audits=[listed], models=None, pools=None), "f.yaml")
    assert alone.audits[0].limits.all() == [Limit(kind="max_drop", limit=0.1)]
    assert alone.alerts is not None
    assert parse_fleet(content(), "f.yaml").alerts is None


def test_a_list_of_audits_may_stand_in_place_of_models_and_pools() -> None:
    audits = [
        {"name": "one", "model": {"factory": "user:one"}, "pool": {"uri": "a", "format": "images"}},
        {"name": "two", "model": {"factory": "user:two"}, "pool": {"uri": "b", "format": "images"}, "seed": 1},
    ]
    made = parse_fleet(content(audits=audits, models=None, pools=None), "f.yaml").audits
    assert [(item.name, item.spec.seed, item.model) for item in made] == [("one", 7, None), ("two", 1, None)]


LISTED = {"name": "one", "model": {"factory": "user:one"}, "pool": {"uri": "a", "format": "images"}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pools": None}, "key 'pools' is missing"),
        ({"audits": [LISTED]}, "give either models and pools, or a list of audits"),
        ({"model": {}}, "unknown key 'model' (value {}); did you mean 'models'?"),
        ({"overrides": [{"models": ["lage"], "spec": {}}]}, "overrides.0.models: 'lage'"),
        ({"spec": {"output": "here"}}, "audit small × shop: the fleet sets output"),
        ({"spec": {"sample": {"method": "srs", "bugdet": 3}}}, "audit small × shop: sample: method 'srs' has no"),
        ({"pools": {"a b": {"uri": "x", "format": "npy"}}}, "audit small × a b: name: use letters, digits"),
        ({"models": None, "pools": None, "audits": [LISTED, LISTED]}, "two audits have the name 'one'"),
        ({"concurrency": 0}, "concurrency: Input should be greater than or equal to 1 (value 0)"),
        ({"alerts": {"false_alarms": 0.1}}, "alerts: give min, max_drop or min_slices"),
        (
            {"models": None, "pools": None, "audits": [LISTED | {"alerts": {"max_dorp": 0.9}}]},
            "f.yaml, audit \"one\": alerts: unknown key 'max_dorp' (value 0.9)",
        ),
        ({"overrides": [{"alerts": {"false_alarms": 0.1}}]}, "unknown key 'overrides.0.alerts.false_alarms'"),
        ({"alerts": {"max_drop": {"accuracy": False}}}, "alerts.max_drop: numbers are meant; YAML reads yes, no"),
        ({"alerts": {"min": {"accuracy": 92}}}, "alerts.min.accuracy: Input should be less than 1 (value 92)"),
        ({"alerts": {"max_drop": {"brier": 0.1}}}, "brier is better the lower it is"),
        ({"alerts": {"min": {"f1@owl": 0.8}}}, 'alerts.min: metric f1@owl has the class "owl"'),
        ({"alerts": {"min": {"f3x": 0.8}}}, "alerts.min: metric 'f3x': choose one of accuracy"),
        ({"alerts": {"max_drop": {"f1@owl": 0.1}}}, 'alerts.max_drop: metric f1@owl has the class "owl"'),
        ({"alerts": {"max_drop": {"macro_f1": 0.1}, "decided_by": "sequence"}}, "max_drop: only the accuracy has an"),
        ({"alerts": {"min_slices": {"camera": 0.8}}}, 'alerts.min_slices: "camera" is not in pool.slices'),
    ],
)
def test_each_mistake_is_one_sentence_with_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_fleet(content(**changes), "f.yaml")
    assert str(caught.value).startswith("f.yaml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_example_makes_four_audits() -> None:
    fleet = load_fleet(ROOT / "jobs" / "digits-fleet.yaml")
    assert {item.name: item.spec.sample.budget for item in fleet.audits} == {
        "digits-current-post": 200,
        "digits-current-bank": 200,
        "digits-next-post": 200,
        "digits-next-bank": 400,
    }


def test_limits_of_metrics_and_slices_are_named_as_in_the_spec() -> None:
    pool = {"uri": "x", "format": "features", "columns": {"prediction": "p"}, "slices": ["camera", "folder"]}
    sample, model = {"method": "srs", "budget": 5}, {"classes": ["cat", "dog"]}
    alerts = {"min": {" F1@dog": 0.8, "macro_f1": 0.7}, "min_slices": {"camera": 0.75}}
    one = {"name": "one", "pool": pool, "sample": sample, "model": model}
    changed = one | {"name": "two", "alerts": {"min_slices": None, "min": {"accuracy": 0.5}}}
    listed = {"models": None, "pools": None, "spec": None, "audits": [one, changed], "alerts": alerts}
    first, second = parse_fleet(content(**listed), "f.yaml").audits
    metrics = [Limit(kind="min", limit=limit, of=of) for of, limit in (("f1@dog", 0.8), ("macro_f1", 0.7))]
    assert first.limits.all() == [*metrics, Limit(kind="min_slices", limit=0.75, of="camera")]
    assert second.limits.all() == [*metrics, Limit(kind="min", limit=0.5)]
