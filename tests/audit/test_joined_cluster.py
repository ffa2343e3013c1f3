"""Pools on a Ray cluster that somebody else has started, as with RAY_ADDRESS, `submit` and `fleet`."""

from pathlib import Path

import numpy as np
import pytest
from extracting_here import extracting_here
from written_pools import SIZE, WRITERS

from opacc_ray.audit import verbs
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", ["images", "features", "delta"])  # of files, of a table, of an extension
def test_a_pool_has_the_features_and_the_draw_of_this_process_on_a_cluster_that_is_joined(
    kind: str, tmp_path: Path
) -> None:
    written = WRITERS[kind](tmp_path / "pool")
    content = {
        "name": "joined",
        "pool": {"uri": written.uri, "format": kind} | ({"columns": written.columns} if written.columns else {}),
        "extract": {"actors": 1},
        "sample": {"method": "srs", "budget": 4},
    }
    if kind != "features":
        content["model"] = {"function": "numpy_model:first_two"}
    feature = "prediction" if kind == "features" else "output"

    def audited(output: str) -> tuple[tuple[str, ...], np.ndarray]:
        run: Run = verbs.first_round(parse_spec(content | {"output": f"{tmp_path}/{output}"}, "spec"), trial=True)
        with run_module.open_view(run, [feature]) as view:
            return run.read_selection(1).ids, np.concatenate(view.map(getattr, feature))

    ids, values = audited("joined")
    with extracting_here():
        expected_ids, expected = audited("here")
    assert ids == expected_ids
    assert np.array_equal(values, expected)
    assert len(np.unique(values, axis=0)) == SIZE
