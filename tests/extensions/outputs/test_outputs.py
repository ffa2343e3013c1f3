"""What an output holds is listed; what is named is deleted, and what is only found is listed first."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import picture_audits
import pytest
from extracting_here import extracting_here
from picture_audits import write_scans
from small_fleet import label, write_fleet
from small_spec import small_spec

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.outputs.outputs import list_runs, remove_features, remove_unneeded
from opacc_ray.runs.run import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_scans(tmp_path, 20)
    return tmp_path


def run_spec(home: Path, **sections: Any) -> Run:
    given = {"name": "first", "sample": {"method": "srs", "budget": 8}} | sections
    with extracting_here():
        return picture_audits.run_spec(small_spec(str(home), f"{home}/audits", **given))


def digest_of(run: Run) -> str:
    assert run.header.features is not None
    return run.header.features.digest


# -- features --------------------------------------------------------------------------------------------


def test_features_are_listed_with_their_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = run_spec(home), run_spec(home, name="second", sample={"method": "css", "budget": 3})
    third = run_spec(home, name="third", extract={"shard_size": 20})
    found = list_runs(f"{home}/audits", features=True)
    assert (len(found.runs), list_runs(f"{home}/audits").features) == (3, None)
    assert found.features is not None
    by_digest = {item.digest: item for item in found.features}
    mine, other = by_digest.pop(digest_of(first)), by_digest.pop(digest_of(third))
    assert by_digest == {}
    assert mine.runs == [first.name, second.name]
    assert other.runs == [third.name]
    assert mine.features == ["hidden", "output", "confidence", "prediction"]
    assert (mine.examples, mine.pool, mine.model) == (20, f"{home}/pool", "small_model:network")
    assert mine.bytes == sum(path.stat().st_size for path in Path(first.features.uri).rglob("*") if path.is_file())
    capsys.readouterr()
    assert main(["runs", f"{home}/audits", "--features"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "features examples size model pool runs" in lines
    [line] = [line for line in lines if line.startswith(mine.digest)]
    assert line.endswith(f" {home}/pool {first.name}, {second.name}")


def test_features_in_use_are_not_removed_unless_forced(home: Path) -> None:
    run = run_spec(home)
    digest, output = digest_of(run), f"{home}/audits"
    with pytest.raises(SpecError, match=f"1 run use {digest}, .* such as {run.name}.*another extraction.*--force"):
        remove_features(output, digest)
    assert run.read_index() is not None
    assert remove_features(output, digest[:6], force=True).features[0].runs == [run.name]
    assert not list(Path(output, "features").rglob("*.*"))
    assert run.read_index() is None
    assert len(run.read_selection(1)) == 8
    assert run_spec(home).read_index() is not None


def test_features_that_no_run_uses_are_found_and_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, output = run_spec(home), f"{home}/audits"
    kept = run_spec(home, name="second", extract={"shard_size": 20})
    assert main(["runs", "remove", run.uri]) == 0
    assert f"opacc runs remove {output} --unused-features\n" in capsys.readouterr().out
    assert main(["runs", "remove", output, "--unused-features"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["unneeded", "features", f"{digest_of(run)}:"]
    assert last == f"next: opacc runs remove {output} --unused-features --force"
    assert remove_unneeded(output, unused_features=True, force=True).features[0].digest == digest_of(run)
    assert remove_unneeded(output, unused_features=True, force=True).features == []
    assert kept.read_index() is not None


def test_an_output_without_features_is_told_from_a_wrong_place(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_spec(home)
    shutil.rmtree(home / "audits" / "features")
    assert main(["runs", f"{home}/audits", "--features"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"no features are shared in {home}/audits"
    for place, what in ((run.uri, "is a run"), (f"{home}/nowhere", "holds no runs and no features")):
        for look in (lambda place: list_runs(place, features=True), lambda place: remove_unneeded(place, 3)):
            with pytest.raises(DataError, match=f"{place} {what}; give the `output` of a spec"):
                look(place)


def test_features_are_kept_while_a_header_cannot_be_read(home: Path) -> None:
    run = run_spec(home)
    digest = digest_of(run)
    (Path(run.uri) / "spec.json").write_text("{")
    with pytest.raises(SpecError, match=f"1 run use {digest}, or cannot be read and may, such as {run.name}"):
        remove_features(f"{home}/audits", digest)
    found = remove_unneeded(f"{home}/audits", unused_features=True, force=True)
    assert (found.unread, found.features) == ([run.uri], [])
    assert run.read_index() is not None


def test_a_digest_that_is_none_or_two_is_refused(home: Path) -> None:
    run = run_spec(home)
    with pytest.raises(DataError, match=f"no set of features in .* begins with 'no'; there: {digest_of(run)}"):
        remove_features(f"{home}/audits", "no")
    with pytest.raises(DataError):
        remove_features(f"{home}/audits", "")


# -- old runs --------------------------------------------------------------------------------------------


@pytest.fixture
def output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Two runs of an audit, the first labelled, and one of another audit."""
    model = {"factory": "small_model:network", "weights": str(tmp_path / "random.safetensors")}
    file = write_fleet(tmp_path, models={"m": model})
    with extracting_here():
        main(["fleet", str(file), "--no-trial"])
        label(Run.open(str(next(tmp_path.glob("audits/weekly-m-shop-*")))))
        (tmp_path / "shop" / "100.png").write_bytes((tmp_path / "shop" / "000.png").read_bytes())
        main(["fleet", str(file), "--no-trial"])
    capsys.readouterr()
    return tmp_path / "audits"


def test_only_replaced_runs_are_old_and_go_with_their_features(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shops = sorted(output.glob("weekly-m-shop-*"), key=lambda path: Run.open(str(path)).header.created)
    later = datetime.now(UTC) + timedelta(days=31)
    assert remove_unneeded(str(output), 32, now=later).runs == []
    found = remove_unneeded(str(output), 30, unused_features=True, now=later)
    assert [item.run for item in found.runs] == [str(shops[0])]
    own = digest_of(Run.open(str(shops[0])))
    assert ([item.digest for item in found.features], found.runs[0].label_files, found.deleted) == ([own], 1, False)
    assert shops[0].exists()
    command = ["runs", "remove", str(output), "--older-than", "0", "--unused-features"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: opacc {' '.join(command)} --force"
    assert main([*command, "--force"]) == 0
    assert f"removed   {shops[0]}: " in capsys.readouterr().out
    sets = list_runs(str(output), features=True).features
    assert (shops[0].exists(), shops[1].exists(), len(sets or [])) == (False, True, 2)
    assert remove_unneeded(str(output), 0, force=True).runs == []
    assert main(["verify", str(shops[1])]) == 0


@pytest.mark.parametrize(
    "options", [["other", "--older-than", "3"], ["--features", "ab", "--unused-features"], ["x", "--features", "ab"]]
)
def test_options_of_an_output_that_do_not_fit_are_refused(options: list[str]) -> None:
    assert main(["runs", "remove", "audits", *options]) == 2
