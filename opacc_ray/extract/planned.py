"""Whether a shard's features are of the examples that the plan of the pool has for it.

An actor checks what it has written, the driver what was there before: each file once.
"""

from opacc_ray.errors import DataError
from opacc_ray.extract.ids import digest_of
from opacc_ray.extract.shards import ShardReport
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.pools import planned_ids
from opacc_ray.lake.store_uris import Store


def check_plan(folder: Store, kind: str, shard: Shard, report: ShardReport) -> None:
    """Raise DataError if a shard's file does not hold the examples that the plan has for it.

    Parameters
    ----------
    folder : where the file lies
    kind : format of the pool
    """
    planned = planned_ids(kind, shard)
    if planned is None:
        return
    bad = {item.id for item in report.bad}
    if bad:
        is_planned = bad <= set(planned) and digest_of(name for name in planned if name not in bad) == report.ids
    else:
        is_planned = digest_of(planned) == report.ids
    if not is_planned:
        raise DataError(
            f"{folder.uri_of(shard.file)} holds {report.num_examples} examples and names {len(bad)} that could not "
            f"be used, which are not the {len(planned)} of its plan; delete it and run the spec again"
        )
