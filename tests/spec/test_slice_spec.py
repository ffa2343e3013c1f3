"""``pool.slices``: every form has a name, a wrong one is one sentence with the fix, and no feature depends on it."""

from typing import Any

import pytest

from opacc_ray.errors import SpecError
from opacc_ray.estimation.adjustments import SampleOf
from opacc_ray.slices import FOLDER, SliceRule
from opacc_ray.spec import Spec, parse_spec


def spec_with(slices: Any, **pool: Any) -> Spec:
    columns = {"columns": {"prediction": "said"}} if pool.get("format", "features") == "features" else {}
    content = {
        "name": "audit",
        "pool": {"uri": "s3://lake/pool", "format": "features"} | columns | pool,
        "sample": {"method": "srs", "budget": 9},
        "output": "s3://audits",
    }
    content["pool"] |= {} if slices is None else {"slices": slices}
    if pool.get("format", "features") != "features":
        content["model"] = {"factory": "models:net"}
    return parse_spec(content, "audit.yaml")


def test_every_form_has_a_name_and_a_rule() -> None:
    given = ["camera", {"age": [18, 30.5]}, ["camera", "age"], "folder", {"folder": 2}, ["folder 2", "camera"]]
    pool = spec_with(given).pool
    assert pool.slice_names == ["camera", "age", "camera*age", "folder", "folder 2", "folder 2*camera"]
    assert pool.slice_rules == (
        SliceRule("camera", "camera"),
        SliceRule("age", "age", (18.0, 30.5)),
        SliceRule("folder", FOLDER),
        SliceRule("folder 2", FOLDER, levels=2),
    )
    assert pool.slice_columns == ("camera", "age")


def test_slices_decide_a_run_only_if_its_draw_serves_them_and_never_its_features() -> None:
    without, given = spec_with(None), spec_with(["camera", {"age": [18]}, ["camera", "age"]])
    assert given.identity() == without.identity()
    assert given.pool.reading() == without.pool.reading()

    def identity(slices: list[Any], serve: list[str]) -> dict[str, Any]:
        sample = {"method": "neyman", "budget": 9, "serve": serve}
        content = spec_with(slices).model_dump(exclude_unset=True) | {"sample": sample}
        return parse_spec(content, "audit.yaml").identity()

    ages, other = ([{"age": cuts}, "camera", ["age", "camera"]] for cuts in ([18], [30]))
    assert identity(ages, ["camera"]) == identity(other, ["accuracy", "camera"]) | {
        "sample": identity(ages, ["camera"])["sample"]
    }
    assert identity(ages, ["age"])["pool"] != identity(other, ["age"])["pool"]
    assert identity(ages, ["age*camera"])["pool"] != identity(other, ["age*camera"])["pool"]


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        ("camera", r"pool.slices: give a list of slices, such as .* \(value \"camera\"\)"),
        ([], "give a list of slices"),
        ([7], "7 is no slice: give a column, .*; put it in quotes"),
        ([{7: [1]}], "7 is no name of a column; put it in quotes"),
        ([{"age": [1], "size": [2]}], "is no slice"),
        (["camera", {"camera": [1]}], "the slices 'camera' are given twice; remove one"),
        (["a", "b", ["a", "b"], ["b", "a"]], "the slices 'a\\*b' are given twice"),
        (["camera", "region", ["camera", "regoin"]], 'has "regoin", which is no slice of the list; did you mean \'reg'),
        (["camera", ["camera", "age"]], '"age", which is no slice of the list; known are camera'),
        (["camera", ["camera", "camera"]], "needs two or more different slices"),
        (["camera", ["camera"]], "needs two or more different slices"),
        ([{"age": 30}], r"\{age: 30\}: give a list of one or more numbers"),
        ([{"age": []}], "give a list of one or more numbers"),
        ([{"age": [float("nan")]}], "give a list of one or more numbers"),
        ([{"age": [10**400]}], "give a list of one or more numbers"),
        ([{"age": [True]}], "give a list of one or more numbers"),
        ([{"age": [50, 18]}], r"\{age: \[50, 18\]\}: the cuts do not rise; write \[18, 50\]"),
        ([{"age": [18, 18]}], r"the cuts do not rise; write \[18\]"),
        ([{"folder": 0}], r"\{folder: 0\}: give the number of levels, 1 or more"),
        ([{"folder": True}], "give the number of levels"),
        (["camera*region"], r"cross slices as a list, \[camera, region\]"),
        (["camera "], "a space at an end"),
        (["prediction"], "'prediction' needs no slices: `opacc estimate RUN --by prediction`"),
        (["recall"], "'recall' is the name of a metric"),
    ],
)
def test_a_wrong_slice_is_one_sentence_with_the_fix(slices: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_with(slices)


@pytest.mark.parametrize("kind", ["images", "npy", "webdataset"])
def test_a_format_without_columns_has_folders_only(kind: str) -> None:
    assert spec_with(["folder"], format=kind).pool.slice_names == ["folder"]
    with pytest.raises(
        SpecError, match=f"slices or sample_of names the column 'camera', and format {kind} has no columns"
    ):
        spec_with(["camera"], format=kind)


def test_a_reference_has_no_slices_of_its_own_and_takes_none_of_the_pool() -> None:
    content = {
        "name": "audit",
        "pool": {"uri": "s3://lake/pool", "format": "images", "slices": ["folder"]},
        "reference": {"uri": "s3://lake/train"},
        "model": {"factory": "models:net"},
        "sample": {"method": "srs", "budget": 9},
        "output": "s3://audits",
    }
    spec = parse_spec(content, "audit.yaml")
    assert spec.reference is not None
    assert spec.reference.slices is None
    content["reference"] = {"uri": "s3://lake/train", "slices": ["folder"]}
    with pytest.raises(SpecError, match="slices is only supported for the pool; remove it"):
        parse_spec(content, "audit.yaml")


def test_a_population_of_clusters_reads_their_column_and_decides_no_run() -> None:
    without, given = spec_with(["camera"]), spec_with(["camera"], sample_of={"video": "more"})
    assert given.pool.population == SampleOf(None, "video")
    assert given.pool.slice_names == ["camera"]
    assert given.pool.slice_columns == ("camera", "video")
    assert [rule.is_cluster for rule in given.pool.slice_rules] == [False, True]
    assert (given.identity(), given.pool.reading()) == (without.identity(), without.pool.reading())
    assert without.described_as(given).pool == given.pool
    assert spec_with(["camera"], sample_of={"camera": 300}).pool.slice_rules == without.pool.slice_rules
    assert spec_with(None, sample_of=7542).pool.population == SampleOf(7542)
    assert Spec.model_validate_json(given.model_dump_json()) == given


@pytest.mark.parametrize("given", [0, -3, "all", {"video": 0}, {"a": 1, "b": 2}, {"recall": 9}, True, 2.5])
def test_what_is_no_population_is_one_sentence(given: object) -> None:
    with pytest.raises(SpecError, match=r"pool.sample_of: "):
        spec_with(None, sample_of=given)
