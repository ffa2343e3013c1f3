"""What to extract: a description that every process which reads or computes is sent."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opacc_ray.extract.feature_set import left_of, merged, read_carried
from opacc_ray.extract.inference import check_bad
from opacc_ray.extract.model_code import Code, check_unchanged
from opacc_ray.extract.shards import FeatureShard, ShardReport, not_finite
from opacc_ray.lake.examples import BadItem, Shard
from opacc_ray.lake.store_uris import Store
from opacc_ray.spec import PoolSpec, Spec, see_modules


@dataclass(frozen=True)
class Extraction:
    """What to extract, its source and its target: small enough to send to every actor."""

    spec: Spec
    source: PoolSpec
    names: tuple[str, ...]
    target: Store  # folder of features
    reference: Store | None = None  # folder of the reference
    ranges: bool = False  # also extract ranges of the covered neurons
    hidden: Store | None = None  # folder of the hidden layer that dsa or lsa is computed from; None: the model runs
    modules: str = field(default_factory=os.getcwd)  # the driver's folder, which may contain the user's modules
    code: Code | None = None  # that is part of the features' digest
    known: Store | None = None  # complete features of an earlier listing of the pool
    pace: float | None = None  # seconds of an example in a trial

    def see_code(self) -> None:
        """Let this process import the user's modules; raises DataError if they are not those of the driver."""
        see_modules(self.modules)
        if self.code is not None:
            check_unchanged(self.code, self.spec, self.modules)

    def needs_model(self, shard: Shard) -> bool:
        """Return whether the features of a shard come from the model, or from the hidden layer that it gave."""
        return not self.source.holds_features and bool(self.hidden or left_of(shard))

    def features_of(self, shard: Shard, compute: Callable[[Shard], FeatureShard]) -> FeatureShard:
        """Return a shard's features: the known ones of its parts, and what ``compute`` returns of the others.

        NaN or infinity in a computed one is an error, or a bad item if the spec excludes those.
        """
        left = left_of(shard)
        parts = [] if self.known is None or not shard.carried else [read_carried(self.known, self.names, shard)]
        if left or not parts:
            parts.append(self.usable(compute(shard.only(left))))
        return merged(shard, parts)

    def usable(self, shard: FeatureShard) -> FeatureShard:
        """Return the named columns of the examples without NaN or infinity in any column."""
        unfit = not_finite(shard.columns)
        bad = [
            BadItem(shard.ids[row], f"NaN or infinity in {name}", None if shard.sources is None else shard.sources[row])
            for row, name in unfit.items()
        ]
        check_bad(self.spec, self.source, [*shard.bad, *bad])
        rows = [row for row in range(len(shard.ids)) if row not in unfit]
        return shard.take(rows, self.names)._replace(bad=[*shard.bad, *bad])


OnDone = Callable[[Shard, ShardReport], None]  # called with each finished shard and its report
Executor = Callable[[Extraction, Sequence[Shard], OnDone], None]
