"""`opacc watch`: the runs of an audit as windows, compared with the first one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import parquet

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.fleet.watching import watch_audit
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


def confidence(i: int) -> float:
    return float(np.random.default_rng(i).uniform(0.6, 1))


def week(pool: Store, number: int) -> None:
    """Bring 200 examples, numbered from 1000 · number."""
    numbers = range(1000 * number, 1000 * number + 200)
    columns = {"id": [f"row-{i}" for i in numbers], "prediction": [0] * 200}
    pool.write(f"{number:02d}.parquet", parquet(pa.table(columns | {"confidence": [confidence(i) for i in numbers]})))


def audit(pool: Store, method: str, label: float | None) -> Run:
    """Run the audit; its new examples get labels, right with the probability ``label``."""
    columns = {"id": "id", "prediction": "prediction", "confidence": "confidence"}
    content: dict[str, Any] = {
        "name": "weekly",
        "pool": {"uri": pool.uri, "format": "features", "columns": columns},
        "model": {"classes": ["right", "wrong"]},
        "sample": {"method": method, "budget": 100},
        "output": f"{pool.uri}-audits",
    }
    run = verbs.run(parse_spec(content, "spec"))
    if label is not None:
        chosen = run.read_chosen(1)
        left = [name for name, known in zip(chosen.ids, chosen.labelled, strict=True) if not known]
        said = [f"{name},{'right' if k < label * len(left) else 'wrong'}" for k, name in enumerate(left)]
        label_actions.import_labels(run, "labels.csv", "\n".join(["id,label", *said]).encode())
    return run


@pytest.fixture
def pool(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "pool"))


@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_drop_raises_one_alarm(method: str, pool: Store, capsys: pytest.CaptureFixture[str]) -> None:
    week(pool, 0)
    first = audit(pool, method, 0.95)
    for number in (1, 2):
        week(pool, number)
        audit(pool, method, 0.95)
    calm = watch_audit("weekly", f"{pool.uri}-audits")
    assert (calm.reference, calm.alarm, len(calm.windows)) == (first.name, None, 2)
    assert calm.exact == (method == "srs")
    assert calm.answer.startswith("No alarm after 2 of 2 windows")
    window = calm.windows[0]
    assert (window.examples, window.labels) == (200, 50)  # 100 · 200/400
    assert window.low is not None
    assert window.low < 0.95 < window.high
    assert window.change_low < 0 < window.change_high
    worst = []
    for number in (3, 4) if method == "srs" else (3, 4, 5, 6):  # intervals are weaker evidence than draws
        week(pool, number)
        worst.append(audit(pool, method, 0.2).name)
    found = watch_audit("weekly", f"{pool.uri}-audits")
    assert found.alarm in worst
    assert found.windows[-1].change_high < 0
    assert found.answer.startswith("ALARM: the accuracy has dropped")
    capsys.readouterr()
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits"]) == 8
    assert "at most 5.0 % in the life of the audit" in " ".join(capsys.readouterr().out.split())
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits", "--json"]) == 8
    assert json.loads(capsys.readouterr().out)["alarm"] == found.alarm


def test_window_without_labels_shows_what_confidence_says(pool: Store, capsys: pytest.CaptureFixture[str]) -> None:
    week(pool, 0)
    audit(pool, "srs", 0.9)
    week(pool, 1)
    audit(pool, "srs", None)
    [window] = watch_audit("weekly", f"{pool.uri}-audits").windows
    assert (window.labels, window.value, window.evidence) == (0, None, None)
    assert set(window.without_labels) == {"average confidence", "DoC", "ATC", "CBPE"}
    mean = np.mean([confidence(i) for i in range(1000, 1200)])
    assert window.without_labels["average confidence"] == pytest.approx(mean, abs=1e-6)
    capsys.readouterr()
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits"]) == 0
    assert "what it meant in the reference" in " ".join(capsys.readouterr().out.split())


def test_audit_without_labels_is_refused(pool: Store) -> None:
    week(pool, 0)
    audit(pool, "srs", None)
    with pytest.raises(DataError, match=r"no run of 'weekly' in .* has complete labels"):
        watch_audit("weekly", f"{pool.uri}-audits")
