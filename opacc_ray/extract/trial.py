"""One example through transform and model, on the CPU: what an actor would find out, known before any starts."""

from typing import NamedTuple

from opacc_ray.errors import DataError
from opacc_ray.extract.extractor import refusal
from opacc_ray.extract.inference import check_hidden, load_model, run_model
from opacc_ray.extract.inputs import load_transform, transformed
from opacc_ray.extract.outputs import read_output
from opacc_ray.extract.source import open_pool, rules_of
from opacc_ray.lake.examples import Example, Plan
from opacc_ray.lake.pools import read_examples
from opacc_ray.spec import PoolSpec, Spec

SHARDS_TRIED = 8
"""Shards in which an example that decodes is looked for."""


class Trial(NamedTuple):
    """What the model made of one example."""

    id: str
    shape: tuple[int, ...]  # of the decoded example
    dtype: str
    input: tuple[int, ...]  # what the transform makes of it
    hidden: int  # neurons of the recorded layer; 0 if the model gives its output alone
    output: int  # columns of the output
    prediction: int | float


def try_example(spec: Spec, plan: Plan) -> Trial:
    """Build the model and run the first example of the pool that decodes.

    Raises
    ------
    SpecError, DataError, StorageError
        What extraction would end with: functions that cannot be imported, weights that do not fit, a layer that is not
        there, a transform or model that raises, an output that does not read as the spec says.
    """
    transform = load_transform(spec)
    covered = spec.extract.coverage if "coverage" in spec.features() else None
    model = load_model(spec, "cpu", covered)
    example = _first_sound(spec, plan)
    value = transformed(transform, example)
    activations = run_model(model, value[None])
    columns = read_output(
        activations.output,
        task=spec.model.task,
        kind=spec.model.output,
        threshold=spec.model.threshold,
        precision=spec.extract.precision,
    )
    check_hidden(spec.features(), activations)
    hidden = 0 if activations.hidden is None else activations.hidden.shape[1]
    sizes = hidden, columns["output"].shape[1]
    said = columns["prediction"][0].item()
    return Trial(example.id, example.array.shape, str(example.array.dtype), value.shape, *sizes, said)


def _first_sound(spec: Spec, plan: Plan) -> Example:
    """The first example that decodes, of some shards that a filter leaves any; unless bad ones are excluded, the first.

    Past that many shards of bad examples alone the pool is not what the spec says, and to read on takes long.
    """
    reason, tried = None, 0
    for shard in plan.shards:
        for item in read_examples(open_pool(spec.pool), spec.pool.format, shard, rules_of(spec.pool)):
            if isinstance(item, Example):
                return item
            if spec.extract.on_bad_item == "error":
                raise refusal(spec, spec.pool, item)
            reason = reason or f"{item.id}: {item.reason}"
        tried += reason is not None
        if tried == SHARDS_TRIED:
            break
    if reason is None:
        raise left_nothing(spec.pool)
    where = f"the first {tried} shards of " if tried < len(plan.shards) else ""
    raise DataError(
        f"no example of {where}{spec.pool.uri} could be read, the first because of {reason}; check the pool"
    )


def left_nothing(source: PoolSpec) -> DataError:
    """The error of a pool without an example, or whose filter fits none."""
    if source.filter is None:
        return DataError(f"{source.uri} holds no example; check the URI")
    return DataError(f"pool.filter {source.filter!r} leaves nothing of {source.uri}; correct it, or leave it out")
