"""Surprise and coverage in a run: their values, their reference, and that both are extracted once."""

import io
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from extracting_here import extracting_here
from killed_worker import killed_once
from local_s3 import LocalS3
from oracles.coverage import met
from oracles.surprise import dsa as plain_dsa
from oracles.surprise import lsa as plain_lsa
from PIL import Image
from small_model import Net, trained
from small_pictures import picture, to_input
from small_spec import small_spec

from opacc_ray.audit import verbs
from opacc_ray.cluster import actor_pool
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract import reference
from opacc_ray.extract.feature_set import Index
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.neurons.requirements import Ranges
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

TRAIN = range(200, 260)
ALL = {"features": ["hidden", "output", "confidence", "dsa", "lsa", "coverage"], "coverage": {"criterion": "nbc"}}
DEEPEST = {"method": "deepest", "budget": 20, "auxiliary": "dsa"}
EXTRACT = {"batch_size": 8, "shard_size": 10, "actors": 1}
TWO = {"actors": 2}


@pytest.fixture(scope="module")
def lake(s3: LocalS3) -> str:
    """A bucket with 120 pictures of the field, 60 of the training data, 45 of them of three classes, and weights."""
    from safetensors.torch import save

    store = open_store(s3.create_bucket("lake"))
    store.write_many((f"pool/{i:03d}.png", picture(i)) for i in range(120))
    store.write_many((f"train/{i:03d}.png", picture(i)) for i in TRAIN)
    store.write_many((f"part/{i:03d}.png", picture(i)) for i in TRAIN if i % 4 != 3)
    store.write("model.safetensors", save(trained().state_dict()))
    return store.uri


def make_spec(lake: str, home: str, extract: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """A spec that compares with the training data; ``extract`` adds to its section, keywords replace others."""
    compared = {"reference": {"uri": f"{lake}/train"}}
    return small_spec(lake, home, extract=EXTRACT | (extract or {}), **(compared | sections))


@pytest.fixture
def spec(lake: str, bucket: str) -> Callable[..., dict[str, Any]]:
    return lambda **sections: make_spec(lake, bucket, **sections)


def run_spec(content: dict[str, Any], progress: Callable[[int, int], None] = lambda *_: None) -> Run:
    return verbs.first_round(parse_spec(content, "spec"), progress)


def extract_here(content: dict[str, Any]) -> Run:
    """The same in this process, without actors."""
    with extracting_here():
        return run_spec(content)


@pytest.fixture(scope="module")
def finished(lake: str, s3: LocalS3) -> Run:
    """A run with every feature, extracted in this process. Not to be changed."""
    return extract_here(make_spec(lake, s3.create_bucket("finished-reference"), ALL))


def columns_of(run: Run, *names: str) -> list[np.ndarray]:
    with run_module.open_view(run, names) as view:
        return [np.concatenate(view.map(_get, name)) for name in names]


def _get(part: Any, name: str) -> np.ndarray:
    return getattr(part, name)


def files_of(run: Run) -> dict[str, bytes]:
    """What was extracted: the set of the run's features, and the references, all next to the run."""
    home = open_store(run.spec.output)
    keys = [entry.key for entry in home.list() if entry.key.startswith(("features/", "references/"))]
    cached = ("/loaded-", "/derived/")  # a record of each process, with its own, and what was read of a column
    return {key: home.read(key) for key in keys if not any(part in key for part in cached)}


def reference_of(run: Run) -> Store:
    """The folder of what a run compares with."""
    return open_store(f"{run.spec.output}/references/{run.header.reference.digest[:16]}")


def layers_of(pictures: Iterable[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs of the first layer, of the hidden one (its ReLU) and of the last, by plain torch."""
    net = trained()
    rows = [to_input(np.asarray(Image.open(io.BytesIO(picture(i))))) for i in pictures]
    with torch.inference_mode():
        first = net.first(torch.from_numpy(np.stack(rows)).flatten(1))
        hidden = torch.relu(first)
        return tuple(layer.numpy() for layer in (first, hidden, net.last(hidden)))  # type: ignore[return-value]


# -- what is extracted -----------------------------------------------------------------------------------


def test_features_are_the_plain_formulas(finished: Run) -> None:
    """The formulas take all pictures as one batch, the run took eight at a time.

    A product may then differ in its last bits, which is less than 1e-6 here, in values up to 4. DSA, a quotient of
    distances far from 0, moves by 3e-5 of its value for that. LSA is a logarithm and may itself be 0, so its tolerance
    is absolute: the narrowest kernel is 0.03 wide, and some widths away from the traces 1e-6 moves LSA by up to 8e-4.
    """
    first, hidden, last = layers_of(range(120))
    ours, traces, theirs = layers_of(TRAIN)
    compared = (hidden, last.argmax(1), traces, theirs.argmax(1))
    assert set(compared[1]) == set(compared[3]) == {0, 1, 2, 3}
    prediction, dsa, lsa, coverage = columns_of(finished, "prediction", "dsa", "lsa", "coverage")
    np.testing.assert_array_equal(prediction, compared[1])  # the largest output leads by more than 1
    np.testing.assert_allclose(dsa, plain_dsa(*compared), rtol=1e-4)
    np.testing.assert_allclose(lsa, plain_lsa(*compared), rtol=0, atol=1e-3)
    low, high = ([getattr(layer, end)(axis=0) for layer in (ours, theirs)] for end in ("min", "max"))
    expected = met("nbc", [first, last], low, high)
    assert 0 < expected.mean() < 0.5
    assert coverage.dtype == np.uint8
    at_end = np.hstack([at_ends(*each) for each in zip((first, last), low, high, strict=True)])
    assert at_end.mean() < 0.01
    bits = np.unpackbits(coverage, axis=1, count=expected.shape[1]).astype(bool)
    np.testing.assert_array_equal(bits[~at_end], expected[~at_end])


def at_ends(layer: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether the last bits decide on which side of each end of its range a neuron is, (B, 2 a neuron) bool."""
    return np.stack([np.abs(layer - end) < 1e-5 for end in (low, high)], axis=2).reshape(len(layer), -1)


@pytest.mark.parametrize(
    ("sample", "extract", "added"),
    [
        ({"method": "ces", "candidates": 20}, {}, []),
        ({"method": "deepreduce"}, {"coverage": {"criterion": "nc:0.5"}}, ["coverage"]),
        ({"method": "deepreduce"}, {"coverage": {"criterion": "nbc", "layers": ["first"]}}, ["coverage"]),
    ],
    ids=["ces", "nc", "nbc"],
)
def test_what_the_method_needs_is_extracted_and_nothing_else(
    spec, sample: dict[str, Any], extract: dict[str, Any], added: list[str]
) -> None:
    run = extract_here(spec(sample=sample | {"budget": 40}, extract=extract))
    widths = index_of(run).features
    assert list(widths) == ["hidden", "output", "confidence", *added, "prediction"]
    compares = extract.get("coverage", {}).get("criterion") == "nbc"
    references = {key.rpartition("/")[2] for key in files_of(run) if key.startswith("references/")}
    assert ("ranges.npz" in references) == bool(references) == compares
    assert widths.get("coverage", 0) == (2 if added else 0)  # bytes of 10 neurons, or of 6 twice
    with pytest.raises(SpecError, match=r"extract\.features: \[hidden, output, confidence, .*dsa\] to the spec"):
        verbs.select(run, "deepest", 20, {"auxiliary": "dsa"})


# -- once for all runs, and again the same ---------------------------------------------------------------


def test_runs_share_a_reference(spec, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opacc_ray")
    written = []
    for auxiliary, needed in [("dsa", ["dsa"]), ("lsa", ["lsa"]), ("combined", ["dsa"])]:
        caplog.clear()
        run = extract_here(spec(sample=DEEPEST | {"auxiliary": auxiliary}))
        assert len(run.read_selection(1)) == 20
        assert list(index_of(run).features) == ["hidden", "output", "confidence", *needed, "prediction"]
        reused = f"6 of 6 shards were done before: {reference_of(run).uri}"
        assert (reused in caplog.text) == (auxiliary != "dsa")
        written.append(open_store(f"{run.spec.output}/references").list())
    assert written[0] == written[1] == written[2]


def test_digest_names_what_decides_the_content(lake: str) -> None:
    def digest(listing: str = "x", **changes: Any) -> str:
        spec = parse_spec(make_spec(lake, "s3://out", **({"sample": DEEPEST} | changes)), "spec")
        return reference.digest(spec, Plan((), listing))

    model = {"factory": "small_model:network", "weights": f"{lake}/model.safetensors"}
    nbc = {"sample": {"method": "deepreduce"}, "extract": {"coverage": {"criterion": "nbc"}}}
    first = {"criterion": "snac", "layers": ["first"]}
    others = [
        digest("y"),
        digest(reference={"uri": "s3://a", "format": "npy"}),
        digest(transform="small_pictures:to_input"),
        digest(model=model | {"sha256": "0" * 64}),
        digest(model=model | {"hidden_layer": "first"}),
        digest(extract={"batch_size": 9}),
        digest(extract={"precision": "bfloat16"}),
        digest(**nbc),
        digest(**(nbc | {"extract": {"coverage": first}})),
        digest(extract={"features": ALL["features"], "coverage": first}),
    ]
    assert len({digest(), *others}) == 1 + len(others)
    elsewhere = {"extract": {"actors": 2, "on_bad_item": "exclude"}, "seed": 9, "name": "other"}
    assert digest() == digest(**elsewhere) == digest(sample=DEEPEST | {"auxiliary": "lsa"}, reference={"uri": "s3://a"})
    assert digest(**nbc) == digest(**(nbc | {"extract": {"coverage": {"criterion": "kmnc:3"}}}))


@pytest.mark.usefixtures("ray_cluster")
def test_same_bytes_after_a_driver_and_an_actor_died(
    spec, finished: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(done: int, total: int) -> None:
        assert total == 42  # 6 of the reference, 12 each of the pool, dsa and lsa
        if done == 2:
            raise KeyboardInterrupt

    marker = tmp_path / "died"
    with pytest.raises(KeyboardInterrupt):
        run_spec(spec(extract=ALL), die)
    monkeypatch.setattr(actor_pool, "Worker", killed_once(marker))
    caplog.set_level(logging.INFO, "opacc_ray")
    run = run_spec(spec(extract=ALL | TWO))
    assert marker.exists()
    assert any(f"{kept} of 6 shards were done before" in caplog.text for kept in (2, 3, 4))
    assert files_of(run) == files_of(finished)


# -- what is in the way ----------------------------------------------------------------------------------


def index_of(run: Run) -> Index:
    index = run.read_index()
    assert index is not None
    return index


def test_reference_of_a_model_without_weights_is_not_shared(spec) -> None:
    model = {"factory": "small_model:value_network", "task": "regression"}
    run = extract_here(spec(model=model, extract={"features": ["lsa"]}, sample={"method": "srs", "budget": 20}))
    assert run.store.exists("reference/index.json")
    assert index_of(run).features == {"hidden": 6, "lsa": 1, "prediction": 1}
    assert "references" not in {entry.key.split("/")[0] for entry in open_store(run.spec.output).list()}


def test_class_without_traces(spec, lake: str) -> None:
    content = spec(sample=DEEPEST, reference={"uri": f"{lake}/part"})
    message = r"example '003\.png' .*: no example of the reference is predicted as its class, 3, so it has no dsa"
    for treatment in ("error", "exclude"):  # the example is sound
        content["extract"] |= {"on_bad_item": treatment}
        with pytest.raises(DataError, match=message):
            extract_here(content)


def test_example_whose_trace_is_of_two_classes(spec) -> None:
    content = spec(sample=DEEPEST)
    content["model"] |= {"factory": "extract.test_reference:Blind", "weights": None, "hidden_layer": "side"}
    with pytest.raises(DataError, match="nearest reference trace of its predicted class is also one of another class"):
        extract_here(content)


class Blind(Net):
    """Has a layer that gives the same for all."""

    def __init__(self) -> None:
        super().__init__()
        self.load_state_dict(trained().state_dict())
        self.side = torch.nn.Linear(64, 2)
        torch.nn.init.zeros_(self.side.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.side(x.flatten(1))
        return super().forward(x)


def test_nan_in_a_covered_layer(spec, lake: str) -> None:
    sample, extract = {"method": "deepreduce", "budget": 20}, {"coverage": {"criterion": "nbc"}}
    content = spec(sample=sample, extract=extract)
    content["model"] |= {"factory": "extract.test_reference:Leaky"}
    with pytest.raises(DataError, match=r"'229\.png' of .*/train: NaN or infinity in covered layers"):
        extract_here(content)
    content["extract"] |= {"on_bad_item": "exclude"}
    run = extract_here(content)
    rest = layers_of([i for i in TRAIN if i != 229])
    ranges = Ranges.decode(reference_of(run).read("ranges.npz"), "here")
    for layer, low, high in zip((rest[0], rest[2]), *ranges, strict=True):
        np.testing.assert_allclose(low, layer.min(axis=0), rtol=1e-5)
        np.testing.assert_allclose(high, layer.max(axis=0), rtol=1e-5)


class Leaky(Net):
    """Its first layer gives NaN for picture 229, its output does not."""

    def __init__(self) -> None:
        super().__init__()
        bad = torch.from_numpy(to_input(np.asarray(Image.open(io.BytesIO(picture(229)))))).flatten()
        self.first.register_forward_hook(
            lambda _, inputs, output: torch.where((inputs[0] == bad).all(1, keepdim=True), torch.nan, output),
            prepend=True,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x.flatten(1))).nan_to_num())


def test_damaged_image_of_the_reference(spec, lake: str, bucket: str, caplog: pytest.LogCaptureFixture) -> None:
    damaged = open_store(f"{bucket}/damaged")
    damaged.write_many((f"{i:03d}.png", picture(i)) for i in TRAIN)
    damaged.write("231.png", b"\x89PNG no more")
    content = spec(sample=DEEPEST, reference={"uri": damaged.uri})
    with pytest.raises(DataError, match=r"'231\.png' of .*/damaged.*compare with the rest"):
        extract_here(content)
    excluding = content | {"extract": content["extract"] | {"on_bad_item": "exclude"}}
    assert index_of(extract_here(excluding)).num_examples == 120
    assert "1 examples of" in caplog.text
    with pytest.raises(DataError, match=r"'231\.png'"):  # though the reference is complete now
        extract_here(content)


def test_reference_without_images(spec, bucket: str) -> None:
    content = spec(extract=ALL, reference={"uri": f"{bucket}/void"})
    with pytest.raises(DataError, match=r"the reference .*/void holds no \.png .*reference\.uri"):
        run_spec(content)
    assert open_store(bucket).list() == []
