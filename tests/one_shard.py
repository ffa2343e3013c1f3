"""The features of one shard, extracted in this process."""

from contextlib import closing
from pathlib import Path
from typing import Any

from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.extractor import Extractor
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.store_uris import open_store
from opacc_ray.spec import Spec, parse_spec, plan_pool


def spec_of(folder: Path, **sections: Any) -> Spec:
    """Return the spec of the pool of images in ``folder``, with other sections."""
    content: dict[str, Any] = {
        "name": "one",
        "pool": {"uri": str(folder / "pool"), "format": "images"},
        "model": {"factory": "small_model:network"},
        "extract": {"batch_size": 8},
        "sample": {"method": "srs", "budget": 2},
        "output": str(folder / "runs"),
    }
    return parse_spec(content | sections, "spec")


def extract(spec: Spec, folder: Path, readers: int = 0) -> ShardReport:
    """Extract the first shard of a pool to ``features-READERS`` below ``folder``."""
    job = Extraction(spec, spec.pool, spec.features(), open_store(str(folder / f"features-{readers}")))
    with closing(Extractor(job, "cpu", readers)) as extractor:
        return extractor.extract(plan_pool(spec.pool, spec.extract).shards[0])
