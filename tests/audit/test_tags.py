"""Tags, of which an example may have several, are slices: for each tag those that have it, and the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import SpecError
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs.run_documents import AccuracyEstimate
from opacc_ray.spec import parse_spec

N = 400
RNG = np.random.default_rng(3)
RAIN, FOG = RNG.random(N) < 0.3, RNG.random(N) < 0.2
WRONG = RNG.random(N) < np.where(FOG, 0.5, 0.1)
TAGS = [[name for name, has in (("rain", RAIN[k]), ("fog", FOG[k])) if has] or None for k in range(N)]
PREDICTION = RNG.integers(0, 2, N)


def run_with(home: Path, tags: Any, slices: list[Any]) -> AccuracyEstimate:
    (home / "pool").mkdir()
    table = {"key": [f"x{k}" for k in range(N)], "said": PREDICTION, "sure": np.full(N, 0.9), "weather": tags}
    pq.write_table(pa.table(table), home / "pool" / "part.parquet")
    content = {
        "name": "street",
        "pool": {
            "uri": str(home / "pool"),
            "format": "features",
            "columns": {"id": "key", "prediction": "said", "confidence": "sure"},
            "slices": slices,
        },
        "model": {"classes": ["no", "yes"]},
        "sample": {"method": "srs", "budget": N},
        "output": str(home / "audits"),
    }
    run = verbs.first_round(parse_spec(content, "spec.yaml"))
    truth = np.where(WRONG, 1 - PREDICTION, PREDICTION)
    rows = "".join(f"x{k},{('no', 'yes')[truth[k]]}\n" for k in range(N))
    import_labels(run, "all.csv", f"id,label\n{rows}".encode())
    return accuracy.estimate(run)


@pytest.mark.parametrize("as_text", [False, True])
def test_each_tag_has_the_examples_that_have_it_and_the_others(as_text: bool, tmp_path: Path) -> None:
    tags = [None if own is None else "; ".join(own) for own in TAGS] if as_text else TAGS
    found = run_with(tmp_path, tags, [{"weather": ["rain", "fog"]}, ["weather rain", "weather fog"]])
    rain, fog, both = found.by_slice
    assert (rain.by, fog.by, both.by) == ("weather rain", "weather fog", "weather rain*weather fog")
    for table, has in ((rain, RAIN), (fog, FOG)):
        assert {name: own.size for name, own in table.slices.items()} == {"no": (~has).sum(), "yes": has.sum()}
        assert table.slices["yes"].value == pytest.approx(1 - WRONG[has].mean())
    assert both.slices["yes, yes"].size == (RAIN & FOG).sum()


@pytest.mark.parametrize(
    ("slices", "said"),
    [
        ([{"weather": ["rain", "rain"]}], "appears twice"),
        ([{"weather": ["rain|fog"]}], "is no tag"),
        ([{"weather": []}], "give a list of one or more numbers"),
        ([{"said": ["rain"]}], "tags are texts, such as night"),
    ],
)
def test_what_is_no_tag_is_refused(slices: list[Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=said):
        run_with(tmp_path, TAGS, slices)
