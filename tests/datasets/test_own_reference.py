"""A run whose features were compared with training data is measured beside that, without being told where it lies."""

from pathlib import Path

import numpy as np
import pytest
from extracting_here import extracting_here
from safetensors.torch import save
from small_model import trained
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.report.characterized import characterize_sets as characterize
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


@pytest.mark.parametrize("weights", [True, False], ids=["in a shared folder", "in the run's own prefix"])
def test_the_runs_own_training_data_are_its_reference(weights: bool, tmp_path: Path) -> None:
    for folder, numbers in (("pool", range(40)), ("train", range(200, 224))):
        (tmp_path / folder).mkdir()
        for i in numbers:
            (tmp_path / folder / f"{i:03d}.png").write_bytes(picture(i))
    (tmp_path / "model.safetensors").write_bytes(save(trained().state_dict()))
    model = {"factory": f"small_model:{'network' if weights else 'trained'}"}
    if weights:
        model["weights"] = f"{tmp_path}/model.safetensors"
    spec = {
        "name": "own",
        "pool": {"uri": f"{tmp_path}/pool", "format": "images"},
        "model": model,
        "reference": {"uri": f"{tmp_path}/train"},
        "extract": {"batch_size": 4, "shard_size": 10, "features": ["hidden", "output", "confidence", "dsa"]},
        "sample": {"method": "srs", "budget": 8},
        "output": f"{tmp_path}/audits",
    }
    with extracting_here():
        run = verbs.run(parse_spec(spec, "spec"), trial=True)
    [model_found] = characterize([Run.open(run.uri)]).models
    pool, selection, reference = model_found.sets
    assert (pool.examples, selection.examples, reference.examples) == (40, 8, 24)
    assert model_found.reference is not None
    assert "reference" in model_found.reference
    within = sum(item.cp * item.examples for item in reference.classes if item.cp is not None)
    assert 0 < within <= 24
    assert np.isclose(sum(item.ep for item in pool.classes), len(pool.classes))
