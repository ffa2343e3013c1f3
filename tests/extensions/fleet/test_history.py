"""What the runs of an audit stated, over time: from their prefixes, and from the tables of a lake."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from restored import Restored
from small_fleet import Weeks
from stated_numbers import CAMERAS, METRICS, with_numbers
from written_run import CLASSES, IDS, PREDICTION, TRUTH, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.extensions.fleet.accuracy_history import history_of_runs
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import NumberName, RunHeader
from opacc_ray.runs.series import Population
from opacc_ray.spec import parse_spec

WEEKS = "ffffffff", "00000000", "88888888"


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """Three weeks, the last of which waits for labels; beside them a run of an audit whose name begins alike."""
    folder = Restored(tmp_path_factory.mktemp("weeks") / "output")
    with pytest.MonkeyPatch.context() as patch:
        clock = Weeks(patch)
        for week, digest in enumerate(WEEKS):
            wrong = PREDICTION.copy()
            wrong[: 30 * week] = (TRUTH[: 30 * week] + 1) % 3
            run = named(folder.home, "weekly", digest, wrong)
            verbs.select(run, "srs", 60, {}, seed=week)
            if week < 2:
                answer(run)
                accuracy.estimate(run)
            clock.next()
    named(folder.home, "weekly-shop", "12345678", PREDICTION)
    folder.keep("weeks")
    return folder


@pytest.fixture
def output(weeks: Restored) -> Path:
    return weeks.restore("weeks")


@pytest.fixture
def runs(output: Path) -> list[Run]:
    return [Run.open(str(output / f"weekly-{digest}")) for digest in WEEKS]


def named(home: Path, name: str, digest: str, prediction: object, classes: list[str] = CLASSES, **sections: Any) -> Run:
    """A run under the prefix that `opacc run` gives it; its audit has the name without the digest."""
    run = write_run(home, f"{name}-{digest}", prediction, sections=sections, classes=classes)
    header = run.header.model_copy(update={"spec": run.spec.model_copy(update={"name": name})})
    run.store.write("spec.json", RunHeader(**header.model_dump(exclude={"spec"}), spec=header.spec).to_bytes())
    return Run.open(run.uri)


def answer(run: Run, classes: list[str] = CLASSES) -> None:
    rows = "".join(f"{id},{classes[TRUTH[IDS.index(id)]]}\n" for id in run.read_selection(1).ids)
    import_labels(run, "labels.csv", f"id,label\n{rows}".encode())


def test_runs_are_shown_by_their_time_and_those_without_a_result_are_named(runs: list[Run], output: Path) -> None:
    found = history_of_runs("weekly", str(output))
    assert [point.run for point in found.points] == [runs[0].uri, runs[1].uri]
    assert found.waiting == [runs[2].uri]
    for point, run in zip(found.points, runs, strict=False):
        stated = run.read_estimate()
        assert (point.value, point.low, point.high, point.n) == (stated.value, stated.low, stated.high, stated.n)
        assert (point.made, point.methods) == (run.header.created, ["srs"])


def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(runs: list[Run], output: Path) -> None:
    Path(runs[0].uri, "spec.json").write_text("{}")
    [kept] = Path(runs[1].uri, "estimates").iterdir()
    for place in (kept, Path(runs[1].uri, "estimate.json")):
        place.write_text("{")
    found = history_of_runs("weekly", str(output))
    assert found.unread == [f"{runs[0].uri}/spec.json", f"{runs[1].uri}/estimate.json"]
    assert (found.points, found.waiting) == ([], [runs[2].uri])


def test_an_unknown_name_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no run of 'monthly' in .*; give the name of a spec"):
        history_of_runs("monthly", str(tmp_path))
    run = named(tmp_path, "weekly", "12345678", PREDICTION)
    with pytest.raises(
        DataError, match=f"'{run.name}' is not the name of an audit, and 'weekly' is one: give that name"
    ):
        history_of_runs(run.name, str(tmp_path))


def test_runs_of_a_table_are_found_without_an_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named(tmp_path / "audits", "weekly", "12345678", PREDICTION)
    monkeypatch.chdir(tmp_path)
    assert len(history_of_runs("weekly").waiting) == 1
    with pytest.raises(DataError, match=rf"no run of 'monthly' in {tmp_path}/? or {tmp_path}/audits/?; .*--output"):
        history_of_runs("monthly")
    assert main(["history", "weekly"]) == 0
    assert "no estimate yet" in capsys.readouterr().out


def test_a_metric_or_a_slice_has_a_history_of_its_own(
    runs: list[Run], output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = runs[0].read_estimate()
    runs[0].write_estimate(with_numbers(stated))
    for number, own in (
        (NumberName("f1@dog"), METRICS["f1@dog"]),
        (NumberName("accuracy", "camera", "south"), CAMERAS["south"]),
    ):
        found = history_of_runs("weekly", str(output), number)
        [point] = found.points
        assert (point.run, point.measure) == (runs[0].uri, number.metric)
        assert (point.value, point.low, point.high, point.n) == (own.value, own.low, own.high, own.n)
        assert (found.without, found.number) == ([runs[1].uri], str(number))
    assert main(["history", "weekly", "--output", str(output), "--slice", "camera=south"]) == 0
    told = capsys.readouterr().out
    assert "accuracy in camera=south" in told
    assert "60.0 %" in told
    assert f"the estimate has no accuracy in camera=south: {runs[1].uri}" in told
    assert main(["history", "weekly", "--output", str(output), "--slice", "south"]) == 2
    assert "is not written SLICES=SLICE, as in camera=north" in capsys.readouterr().err


TABLE = {"uri": "s3://lake/photos/", "format": "parquet", "columns": {"image": "jpeg"}}
SPEC: dict[str, Any] = {"name": "a", "model": {"factory": "a:b"}, "output": "x", "pool": TABLE}


def filtered(text: str | None, **more: Any) -> dict[str, Any]:
    return {"pool": TABLE | ({} if text is None else {"filter": text})} | more


def audited(home: Path, digest: str, prediction: object, **given: Any) -> Run:
    run = named(home, "weekly", digest, prediction, **given)
    verbs.select(run, "srs", 60, {}, seed=1)
    answer(run, given.get("classes", CLASSES))
    accuracy.estimate(run)
    return run


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Five weeks of one name: a filter, its opposite, the first filter again, no filter, and other classes."""
    home, made = tmp_path_factory.mktemp("mixed"), list[Run]()
    sure, unsure = filtered("conf > 0.5"), filtered("conf <= 0.5")
    given = [sure, unsure, sure, filtered(None), filtered(None, classes=["cat", "dog", "fox"])]
    with pytest.MonkeyPatch.context() as patch:
        clock = Weeks(patch)
        for week, own in enumerate(given):
            prediction = TRUTH if week != 1 else (TRUTH + 1) % 3
            made.append(audited(home, f"{week:08d}", prediction, **own))
            clock.next()
    return made


def test_runs_of_different_populations_are_series_of_their_own(
    mixed: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(Path(mixed[0].uri).parent)
    assert main(["history", "weekly", "--output", output]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "The runs have 4 populations. Their accuracies are not one series over time."
    heads = [line for line in lines if line.startswith("population")]
    assert heads == [
        'population 1  pool s3://lake/photos, format parquet, filter "conf > 0.5", task classification, '
        "classes cat, dog, owl",
        'population 2  other filter "conf <= 0.5", not "conf > 0.5"',
        'population 3  other filter none, not "conf <= 0.5"',
        "population 4  other classes cat, dog, fox, not cat, dog, owl",
    ]
    assert lines[2].split() == ["made", "accuracy", "interval", "level", "labels", "run"]
    assert re.search(r"^2026-10-05 06:00 +100 % +94\.7 to 100 +95 % +60  \S+$", lines[3])
    assert [line[:10] for line in lines if line.startswith("2026")] == [
        "2026-10-05",
        "2026-10-19",  # the same filter again
        "2026-10-12",
        "2026-10-26",
        "2026-11-02",
    ]
    assert main(["history", "weekly", "--output", output, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    populations = [(point["population"]["filter"], point["population"]["classes"][2]) for point in found["points"]]
    sure, unsure = ("conf > 0.5", "owl"), ("conf <= 0.5", "owl")
    assert populations == [sure, unsure, sure, (None, "owl"), (None, "fox")]


def test_a_population_is_not_a_version_of_its_data_nor_a_model(tmp_path: Path) -> None:
    def digest(pool: dict[str, Any], spec: dict[str, Any], **model: Any) -> str:
        content = SPEC | {"model": SPEC["model"] | model} | spec | {"pool": TABLE | pool}
        return Population.of(parse_spec(content, "spec")).digest

    table = {"format": "iceberg", "catalog": "lake", "table": "db.photos"}
    same = [
        ({}, {}, {}),
        ({"uri": "s3://lake/photos"}, {"seed": 7}, {"factory": "a:c"}),
        ({"columns": {"image": "png"}, "follow_links": True}, {"sample": {"method": "srs", "budget": 3}}, {}),
    ]
    assert len({digest(pool, spec, **model) for pool, spec, model in same}) == 1
    others: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({"uri": "s3://lake/videos/"}, {}, {}),
        ({"filter": "a = 1"}, {}, {}),
        ({"format": "huggingface"}, {}, {}),
        ({"format": "huggingface", "split": "test"}, {}, {}),
        (table, {}, {}),
        (table | {"table": "db.videos"}, {}, {}),
        ({}, {}, {"classes": ["cat", "dog"]}),
        ({}, {}, {"task": "regression"}),
        ({}, {"population": "photos"}, {}),
    ]
    assert len({digest(pool, spec, **model) for pool, spec, model in [same[0], *others]}) == 1 + len(others)
    named = {"population": "photos"}
    assert digest({"filter": "a = 1"}, named) == digest({"uri": "s3://lake/week-2"}, named) == digest({}, named)
    cats = {"classes": ["cat", "dog"]}
    assert digest({}, {}, **cats) == digest({}, {}, classes=["dog", "cat"]) != digest({}, named, **cats)
    versions = ("", "/metadata/v1.metadata.json", "/metadata/v2.metadata.json")
    assert len({digest({"format": "iceberg", "uri": f"s3://lake/t{end}"}, {}) for end in versions}) == 1
    assert digest({"format": "delta", "version": 3}, {}) == digest({"format": "delta"}, {})
