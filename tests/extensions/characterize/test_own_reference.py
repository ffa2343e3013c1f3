"""A run whose features were compared with training data is measured beside that, without being told where it lies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extracting_here import extracting_here
from picture_audits import write_scans
from small_spec import small_spec

from opacc_ray.audit import verbs
from opacc_ray.extensions.characterize.characterization import characterize_sets as characterize
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


@pytest.mark.parametrize("weights", [True, False], ids=["in a shared folder", "in the run's own prefix"])
def test_the_runs_own_training_data_are_its_reference(weights: bool, tmp_path: Path) -> None:
    write_scans(tmp_path, 40, range(200, 224))
    given: dict[str, Any] = {
        "reference": {"uri": f"{tmp_path}/train"},
        "extract": {"batch_size": 4, "shard_size": 10, "features": ["hidden", "output", "confidence", "dsa"]},
        "sample": {"method": "srs", "budget": 8},
    }
    if not weights:
        given["model"] = {"factory": "small_model:trained"}
    spec = small_spec(str(tmp_path), f"{tmp_path}/audits", **given)
    with extracting_here():
        run = verbs.first_round(parse_spec(spec, "spec"), trial=True)
    [model_found] = characterize([Run.open(run.uri)]).models
    pool, selection, reference = model_found.sets
    assert (pool.examples, selection.examples, reference.examples) == (40, 8, 24)
    assert model_found.reference is not None
    assert "reference" in model_found.reference
    within = sum(item.cp * item.examples for item in reference.classes if item.cp is not None)
    assert 0 < within <= 24
    assert np.isclose(sum(item.ep for item in pool.classes), len(pool.classes))
