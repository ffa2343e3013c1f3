"""Specs: a wrong key or value is one sentence with the key, the value and the fix; slices, populations, metrics."""

import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from opacc_ray.errors import SpecError
from opacc_ray.estimation.adjustments import SampleOf
from opacc_ray.pool import FOLDER, SliceRule
from opacc_ray.spec import Spec, load_function, load_spec, parse_spec


def content(**changes: Any) -> dict[str, Any]:
    return {
        "name": "audit",
        "pool": {"uri": "s3://lake/pool", "format": "images"},
        "model": {"factory": "models:net"},
        "sample": {"method": "ces", "budget": 100},
        "output": "s3://audits",
    } | changes


REGRESSION = {"factory": "a:b", "task": "regression"}

DEEPEST = {"method": "deepest", "budget": 9, "auxiliary": "dsa"}

DEEPREDUCE = {"method": "deepreduce", "budget": 9}

SRS = {"method": "srs", "budget": 9}

TRAIN = {"reference": {"uri": "s3://lake/train"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampel": {}}, r"unknown key 'sampel' \(value {}\); did you mean 'sample'\?"),
        ({"pool": {"url": "x", "format": "images"}}, r"unknown key 'pool.url' \(value \"x\"\); did you mean 'uri'"),
        ({"pool": {"format": "images"}}, "key 'pool.uri' is missing"),
        (
            {"pool": {"uri": "x", "format": "zip"}},
            "pool.format: .*'images', .*'lance', .*'npy'.* \\(value \"zip\"\\)",
        ),
        ({"extract": {"actors": 0}}, r"extract.actors: .*greater than or equal to 1 \(value 0\)"),
        ({"extract": {"actors": "many"}}, r"extract.actors: .* a valid integer, .* \(value \"many\"\)"),
        (
            {"extract": {"node_labels": {"zone": "in()"}}},
            r"node_labels: zone: in\(\) is not a label selector; write eu, !eu",
        ),
        ({"model": {"factory": "no colon"}}, "model.factory: write module:function"),
        ({"model": {"factory": "a:b", "sha256": "beef"}}, "model.sha256: give the 64 hexadecimal digits"),
        ({"name": "a/b"}, "name: use letters, digits"),
        ({"sample": {"method": "cse"}}, "sample: there is no method 'cse'; did you mean"),
        ({"sample": {"method": "ces", "bugdet": 9}}, "no parameter 'bugdet'; did you mean 'budget'"),
        ({"sample": {"method": "ces", "budget": 0}}, "budget=0: give a whole number"),
        ({"sample": {"method": "css", "fractions": [[1], 1]}}, r"fractions=\[1\] of method 'css': give a number"),
        ({"sample": {"method": "ces", "layer": [["hidden"]]}}, r"layer=\['hidden'\] of method 'ces': give a name"),
        ({"model": {"factory": "a:b", "task": "regression"}, "sample": {"method": "css"}}, "no confidence"),
        ({"extract": {"features": ["output"]}}, "'ces' needs hidden.*add hidden to extract.features"),
        ({"model": REGRESSION, "extract": {"features": ["hidden", "confidence"]}}, "has confidence.*no confidence"),
        ({"sample": DEEPEST}, r"'deepest' needs dsa, which compares with training data: add reference: \{uri"),
        ({"extract": {"features": ["hidden", "lsa"]}}, "extract.features has lsa, which compares with training data"),
        ({"model": REGRESSION, "sample": DEEPEST}, "'deepest' needs dsa, .* a regression has none; choose lsa"),
        ({"sample": DEEPREDUCE, "extract": {"coverage": {"criterion": "nbc"}}}, "needs coverage, which compares with"),
        ({"extract": {"coverage": {"criterion": "kmcn:9"}}}, "criterion: .* 'kmcn:9'; did you mean 'kmnc:9'?"),
        ({"extract": {"coverage": {"layers": []}}}, "extract.coverage.layers: .*at least 1"),
        ({"seed": True}, r"seed: numbers are meant; YAML reads yes, no, on and off as true and false .*value true"),
        (
            {"model": {"factory": "a:b", "classes": ["cat", "cat "]}},
            "'cat' appears twice, apart from spaces and accents",
        ),
        ({"model": {"factory": "a:b", "classes": ["cat", " "]}}, "a class has an empty name, which would stand for"),
        ({"model": {"factory": "a:b", "classes": [False]}}, r"classes.0: .*; put it in quotes \(value false\)"),
        ({"model": {"factory": "a:b", "classes": ["a", None]}}, r"classes.1: .*; put it in quotes \(value null\)"),
        ({"model": {"task": "grade", "grades": {True: 1, False: 0}}}, "grades: .* as True; put quotes around it"),
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
        ("a: [", "is not YAML in line 1, column 5: "),
        ("a:\n\tb: 1", "is not YAML in line 2, column 1: a tab; indent with spaces"),
        ("- 1", "holds a list, not keys and values"),
        ("", "is empty; `opacc spec` prints one"),
        ("name: 2001-99-99", "has a value that cannot be read: month"),
        ("seed: " + "9" * 6000, "has a value that cannot be read"),
        ("x" * 300_000, "has more than 262144 characters"),
        ("a: &a [*a]", "has more than 50000 values, with aliases expanded"),
        ("!!python/object:os.system {}", "not YAML"),
        ("name: a\npool: {uri: x}\nname: b", "has the key 'name' twice, in lines 1 and 3; remove one"),
        ("name: 2026-01-31", 'name: Input should be a valid string; put it in quotes .value "2026-01-31"'),
        ("sample:\n  budget: 4\n  budget: 400", "has the key 'budget' twice, in lines 2 and 3; remove one"),
    ],
)
def test_a_file_that_is_not_a_spec_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        load_spec(path)


@pytest.mark.parametrize("written", ["2026-01-31T12:00:00Z", '"2026-01-31T12:00:00Z"'])
def test_time_of_a_table_needs_no_quotes(written: str, tmp_path: Path) -> None:
    pool = f"pool: {{uri: x, format: delta, timestamp: {written}, columns: {{image: jpeg}}}}"
    path = tmp_path / "spec.yaml"
    path.write_text(f"{pool}\nname: a\nmodel: {{factory: 'a:b'}}\nsample: {{budget: 9}}\noutput: x")
    assert load_spec(path).pool.timestamp == "2026-01-31T12:00:00Z"


def bomb(line: str) -> str:
    """410 bytes of YAML that stand for 9**9 values."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in pairwise("abcdefghi")]
    return "\n".join([*lines, line])


@pytest.mark.parametrize("line", ["name: *i", "model: {factory: 'a:b', arguments: {x: *i}}", "<<: {x: *i}"])
def test_alias_bomb_is_refused_at_once(line: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(bomb(line))
    start = time.process_time()
    with pytest.raises(SpecError, match="more than 50000 values, with aliases expanded"):
        load_spec(path)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("key", ["name", "sample", "extract", "seed"])
def test_message_shows_a_little_of_a_large_value(key: str) -> None:
    value: Any = ["x"] * 9
    for _ in range(12):
        value = [value] * 9
    for given in (value, {"batch_size": value, "method": value}, "y" * 10**6, 10**4000):
        with pytest.raises(SpecError) as caught:
            parse_spec(content(**{key: given}), "spec.yaml")
        assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("changes", "added", "compares"),
    [
        ({"sample": DEEPEST}, ["dsa"], {"traces"}),
        ({"sample": DEEPEST | {"auxiliary": "lsa"}}, ["lsa"], {"traces"}),
        ({"sample": DEEPEST | {"auxiliary": "combined"}}, ["dsa"], {"traces"}),
        ({"sample": DEEPREDUCE}, ["coverage"], set()),
        ({"sample": DEEPREDUCE | {"coverage": False}}, [], set()),
        ({"sample": DEEPREDUCE, "extract": {"coverage": {"criterion": "kmnc:9"}}}, ["coverage"], {"ranges"}),
        ({"extract": {"coverage": {"criterion": "kmnc:9"}}}, [], set()),
    ],
)
def test_features_are_those_of_the_forward_pass_and_of_the_method(changes, added, compares) -> None:
    spec = parse_spec(content(**TRAIN, **changes), "spec")
    assert spec.features() == ("hidden", "output", "confidence", *added, "prediction")
    assert spec.compares_with() == compares


def test_the_remedy_has_all_keys_to_add() -> None:
    spec = parse_spec(content(sample=DEEPREDUCE), "spec")
    keys = r"extract.features: \[hidden, output, confidence, coverage, dsa\] and reference: \{uri: ...\}"
    assert re.match(f"add {keys}.* to the spec", spec.remedy("dsa"))
    assert "reference" not in parse_spec(content(**TRAIN), "spec").remedy("dsa")
    assert "a regression has none" in parse_spec(content(model=REGRESSION), "spec").remedy("dsa")


def test_a_split_is_of_hugging_face_datasets_and_the_reference_has_one_of_its_own() -> None:
    given = {"pool": {"uri": "s3://lake/ds", "format": "huggingface", "columns": {"image": "image"}, "split": "test"}}
    reference = {"uri": "s3://lake/ds", "split": "train"}
    spec = parse_spec(content(**given, reference=reference, sample=DEEPEST), "spec")
    assert (spec.pool.split, spec.reference.split) == ("test", "train")
    assert parse_spec(content(**given, reference={"uri": "s3://lake/ds"}), "spec").reference.split is None
    other = {"pool": given["pool"] | {"split": "val"}}
    assert spec.identity() != parse_spec(content(**other, reference=reference, sample=DEEPEST), "spec").identity()
    with pytest.raises(SpecError, match="split is only supported for huggingface, and format is npy; remove it"):
        parse_spec(content(pool={"uri": "x", "format": "npy", "split": "test"}), "spec")


def test_identity_leaves_out_what_no_feature_uses() -> None:
    def identity(**changes: Any) -> dict[str, Any]:
        return parse_spec(content(**changes), "spec").identity()

    kmnc = {"extract": {"coverage": {"criterion": "kmnc:9"}}}
    assert identity() == identity(**TRAIN) == identity(**kmnc)
    assert identity(**TRAIN, sample=DEEPREDUCE) == identity(sample=DEEPREDUCE)
    assert identity(**TRAIN, sample=DEEPREDUCE, **kmnc) != identity(**TRAIN, sample=DEEPREDUCE)
    assert identity(**TRAIN, sample=DEEPEST) != identity(reference={"uri": "s3://other"}, sample=DEEPEST)


def test_identity_leaves_out_where_and_how_fast() -> None:
    here = parse_spec(content(extract={"actors": 1}), "spec")
    elsewhere = {"actors": 2, "shard_timeout": 5, "node_labels": {"zone": "!eu"}}
    there = parse_spec(content(extract=elsewhere, output="s3://elsewhere"), "spec")
    assert here.identity() == there.identity()
    assert here.identity() != parse_spec(content(seed=1), "spec").identity()
    assert here.identity() != parse_spec(content(extract={"batch_size": 7}), "spec").identity()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "model.factory: 'no_such_module:f' cannot be imported"),
        ("os:no_such", "module 'os' has no 'no_such'; write module:function with a function of that module"),
        ("os:getwd", "module 'os' has no 'getwd'; did you mean 'getcwd'?"),
        ("os:sep", "is a str, not a function"),
    ],
)
def test_function_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_function(name, "model.factory")


def test_user_module_that_raises_is_one_sentence_with_its_traceback_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raising_module.py").write_text("SIZES = {}\nsize = SIZES['large']\n")
    (tmp_path / "needing_module.py").write_text("import no_such_package\n")
    (tmp_path / "ending_script.py").write_text("def net():\n    pass\n\n\nraise SystemExit(0)\n")
    with pytest.raises(SpecError, match="importing 'raising_module' raised KeyError: 'large'") as caught:
        load_function("raising_module:net", "model.factory")
    assert 'raising_module.py", line 2' in caught.value.details
    with pytest.raises(SpecError, match=r"No module named 'no_such_package'.*needing_module imports it, so install it"):
        load_function("needing_module:net", "model.factory")
    with pytest.raises(SpecError, match="importing 'ending_script' raised SystemExit: 0"):
        load_function("ending_script:net", "model.factory")


def spec_with(slices: Any, **pool: Any) -> Spec:
    """A spec with slices, of stored predictions unless ``pool`` names another format."""
    kind = {"format": "features", "columns": {"prediction": "said"}} if "format" not in pool else pool
    model = {"model": {}} if "format" not in pool else {}
    extra = pool | ({} if slices is None else {"slices": slices})
    return parse_spec(content(**model, pool={"uri": "s3://lake/pool"} | kind | extra, sample=SRS), "audit.yaml")


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
        served = spec_with(slices).model_dump(exclude_unset=True) | {"sample": sample}
        return parse_spec(served, "audit.yaml").identity()

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
        ([7], "7 is no slice: give a column, .*; put it in quotes"),
        ([{7: [1]}], "7 is no name of a column; put it in quotes"),
        ([{"age": [1], "size": [2]}], "is no slice"),
        (["camera", {"camera": [1]}], "the slices 'camera' are given twice; remove one"),
        (["a", "b", ["a", "b"], ["b", "a"]], "the slices 'a\\*b' are given twice"),
        (["camera", "region", ["camera", "regoin"]], 'has "regoin", which is no slice of the list; did you mean \'reg'),
        (["camera", ["camera", "age"]], '"age", which is no slice of the list; known are camera'),
        (["camera", ["camera", "camera"]], "needs two or more different slices"),
        ([{"age": 30}], r"\{age: 30\}: give a list of one or more numbers"),
        ([{"age": [float("nan")]}], "give a list of one or more numbers"),
        ([{"age": [True]}], "give a list of one or more numbers"),
        ([{"age": [50, 18]}], r"\{age: \[50, 18\]\}: the cuts do not rise; write \[18, 50\]"),
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
    pool = {"uri": "s3://lake/pool", "format": "images", "slices": ["folder"]}
    spec = parse_spec(content(pool=pool, **TRAIN, sample=SRS), "audit.yaml")
    assert spec.reference is not None
    assert spec.reference.slices is None
    with pytest.raises(SpecError, match="slices is only supported for the pool; remove it"):
        parse_spec(content(pool=pool, reference={"uri": "s3://lake/train", "slices": ["folder"]}), "audit.yaml")


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


def spec_stating(metrics: Any = (), sample: dict[str, Any] | None = None, **model: Any) -> Spec:
    named = {"factory": "user:network", "classes": ["defect", "fine", "stop sign"]} | model
    pool = {"uri": "pool", "format": "images", "slices": ["folder"]}
    drawn = {"method": "neyman", "budget": 40} | (sample or {})
    stated = {"metrics": metrics} if metrics else {}
    return parse_spec(content(pool=pool, model=named, sample=drawn, **stated), "spec")


def test_of_two_classes_the_second_is_meant() -> None:
    spec = spec_stating(["f1"], classes=["fine", "defect"])
    assert spec.drawn_with("neyman", {}) == {"serve": ["f1@1"]}


@pytest.mark.parametrize(
    ("sample", "metrics", "serve"),
    [
        ({}, [], None),
        ({}, ["accuracy", "macro_f1"], ["accuracy"]),
        ({}, [{"recall": "stop sign"}, "accuracy"], ["recall@2"]),
        ({"serve": ["accuracy", "folder", {"f1": "fine"}]}, [{"recall": "stop sign"}], ["accuracy", "folder", "f1@1"]),
        ({"serve": "truth"}, ["macro_f1"], ["truth"]),
    ],
)
def test_first_metric_is_served_unless_the_sample_names_others(
    sample: dict[str, Any], metrics: list[Any], serve: list[str] | None
) -> None:
    spec = spec_stating(metrics, sample)
    assert spec.drawn_with("neyman", spec.sample.parameters).get("serve") == serve
    assert spec.drawn_with("srs", {"replacement": True}) == {"replacement": True}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"metrics": ["roc"]}, "metrics: metric 'roc': choose one of accuracy, macro_f1"),
        ({"metrics": [{"f1": "defekt"}]}, "metrics: metric f1@defekt has the class \"defekt\"; did you mean 'defect'?"),
        ({"metrics": ["f1"]}, "metrics: metric f1 names no class; give one of defect, fine, stop sign"),
        ({"metrics": [["f1", "defect"]]}, "is no number to state; write accuracy, macro_f1 or {recall: CLASS}"),
        ({"metrics": [{"f1": False}]}, "YAML parses the class of f1 as False; put quotes around it"),
        ({"metrics": ["macro_f1", "Macro_F1"]}, "metrics: macro_f1 appears twice; remove one"),
        (
            {"metrics": ["macro_f1"], "task": "regression", "classes": None},
            "macro_f1 needs classes, and model.task is reg",
        ),
        ({"metrics": ["f1@x"], "classes": None}, "classes have no names; give its number, as in f1@3"),
        ({"sample": {"serve": ["camera"]}}, 'sample.serve: "camera" is no number to serve; choose one of accuracy'),
        ({"sample": {"serve": ["f1@fin"]}}, "sample.serve: metric f1@fin has the class \"fin\"; did you mean 'fine'?"),
        ({"sample": {"method": "srs", "serve": ["truth"]}}, "method 'srs' has no parameter 'serve'"),
    ],
)
def test_what_there_is_not_is_refused_in_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=re.escape(words)):
        spec_stating(**given)
