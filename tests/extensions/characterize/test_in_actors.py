"""The same numbers from actors of a cluster, however many, as from this process."""

from pathlib import Path

import numpy as np
import pytest
from synthetic_run import write_synthetic

from opacc_ray.cluster.tasks import ActorParts
from opacc_ray.extensions.characterize.classes import Grouped, Metrics, Regions, measure
from opacc_ray.extract.feature_files import Features, StoredParts
from opacc_ray.parts.view import Parts, View

NAMES = ("hidden", "output", "prediction", "confidence")


@pytest.mark.usefixtures("ray_cluster")
def test_one_two_and_four_actors_give_the_numbers_of_one_process(tmp_path: Path) -> None:
    run = write_synthetic(f"{tmp_path}/characterized-00000001", 3000, 12, 400)
    index = run.read_index()
    assert index is not None
    features = Features.of(run.features, index.files)

    def measured(parts: Parts) -> Metrics:
        return measure(Grouped(View(parts), 10), Regions(high=0.9))

    here = measured(StoredParts(features, NAMES))
    assert 0 < here.cp.min() <= here.cp.max() < 1
    assert here.pbc.sum(axis=1) == pytest.approx(here.bc, abs=1e-12)
    assert here.bc.min() > 0
    for num_actors in (1, 2, 4):
        held = ActorParts(features, NAMES, num_actors)
        try:
            found = measured(held)
        finally:
            held.close()
        assert all(np.array_equal(*both) for both in zip(found, here, strict=True))
