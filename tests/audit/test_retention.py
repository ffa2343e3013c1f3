"""Old runs go with their labels and features, but never what the next audit is compared with."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from extracting_here import extracting_here
from small_fleet import label, write_fleet

from opacc_ray.audit.retention import expire
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.runs.feature_sets import list_sets
from opacc_ray.runs.run import Run


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


def test_only_replaced_runs_expire_with_their_features(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shops = sorted(output.glob("weekly-m-shop-*"), key=lambda path: Run.open(str(path)).header.created)
    later = datetime.now(UTC) + timedelta(days=31)
    assert expire(str(output), 32, now=later).runs == []
    found = expire(str(output), 30, now=later)
    assert [item.run for item in found.runs] == [str(shops[0])]
    [own] = [item.digest for item in list_sets(str(output)).sets if item.runs == [shops[0].name]]
    assert (found.features, found.runs[0].labels, found.deleted) == ([own], 1, False)
    assert shops[0].exists()
    assert main(["runs", "expire", str(output), "--days", "0"]) == 0
    assert f"next: opacc runs expire {output} --days 0 --force" in capsys.readouterr().out
    assert main(["runs", "expire", str(output), "--days", "0", "--force"]) == 0
    assert f"deleted   {shops[0]}: unchanged for " in capsys.readouterr().out
    assert (shops[0].exists(), shops[1].exists(), len(list_sets(str(output)).sets)) == (False, True, 2)
    assert expire(str(output), 0, force=True).runs == []
    assert main(["verify", str(shops[1])]) == 0


def test_a_run_that_cannot_be_read_keeps_its_features(output: Path) -> None:
    [run] = output.glob("weekly-m-field-*")
    (run / "spec.json").write_text("{}")
    found = expire(str(output), 0)
    assert (found.unread, found.features, len(found.runs)) == ([str(run)], [], 1)
    with pytest.raises(DataError, match="holds no runs and no features"):
        expire(str(output.parent / "shop"), 0)
