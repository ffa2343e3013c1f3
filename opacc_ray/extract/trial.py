"""One example through transform and model, on the CPU: what an actor would find out, known before any starts."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.extractor import load_transform, run_model, transformed
from opacc_ray.extract.outputs import read_output
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.storage import open_store
from opacc_ray.spec import Spec


class Trial(NamedTuple):
    """What the model made of one example."""

    id: str
    shape: tuple[int, ...]  # of the decoded example
    dtype: str
    input: tuple[int, ...]  # what the transform makes of it
    hidden: int  # neurons of the recorded layer
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
    from opacc_ray.extract.model import Model

    transform = load_transform(spec)
    covered = spec.extract.coverage if "coverage" in spec.features() else None
    model = Model(spec.model, "cpu", spec.extract.precision, spec.extract.threads_per_actor, covered)
    name, example = _first_sound(spec, plan)
    value = transformed(transform, name, example)
    activations = run_model(model, value[None])
    columns = read_output(
        activations.output,
        task=spec.model.task,
        kind=spec.model.output,
        threshold=spec.model.threshold,
        precision=spec.extract.precision,
    )
    sizes = activations.hidden.shape[1], columns["output"].shape[1]
    said = columns["prediction"][0].item()
    return Trial(name, example.shape, str(example.dtype), value.shape, *sizes, said)


def _first_sound(spec: Spec, plan: Plan) -> tuple[str, NDArray[Any]]:
    """Id and array of the first example of the first shard that decodes; unless bad ones are excluded, of the first."""
    store, excludes = open_store(spec.pool.uri), spec.extract.on_bad_item == "exclude"
    reason = "it holds no example"
    for key in plan.shards[0].keys:
        examples = read_examples(store, spec.pool.format, Shard(0, (key,)))
        if examples.arrays:
            return examples.ids[0], np.asarray(examples.arrays[0])
        reason = f"{examples.bad[0].id}: {examples.bad[0].reason}" if examples.bad else f"{key} holds no example"
        if examples.bad and not excludes:
            break
    raise DataError(f"no example of {spec.pool.uri} could be read, the first because of {reason}; check the pool")
