"""Drift makers: deterministic, nothing at strength 0, and what each one says it does; and studies of what they make."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from small_model import trained
from small_pictures import pixels, to_input
from small_spec import small_spec
from small_study import labelled, results_of, spec_of

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.study import drift
from opacc_ray.extensions.study.experiment import prepared
from opacc_ray.extensions.study.study_spec import CaseSpec
from opacc_ray.lake.store_uris import open_store

GREY = np.random.default_rng(1).integers(20, 236, (30, 40)).astype(np.uint8)
COLOUR = np.random.default_rng(2).integers(0, 256, (24, 20, 3)).astype(np.uint8)


@pytest.mark.parametrize("kind", drift.IMAGE_DRIFTS)
@pytest.mark.parametrize("image", [GREY, COLOUR, GREY.astype(np.float32) / 255], ids=["grey", "colour", "float"])
def test_images_keep_shape_and_type_and_depend_on_seed_and_name_alone(kind: str, image: np.ndarray) -> None:
    found = drift.drift_image(image, kind, 0.7, 3, "a.png")
    assert (found.shape, found.dtype) == (image.shape, image.dtype)
    assert np.array_equal(found, drift.drift_image(image, kind, 0.7, 3, "a.png"))
    assert np.array_equal(image, drift.drift_image(image, kind, 0.0, 3, "a.png"))
    distances = [np.abs(drift.drift_image(image, kind, s, 3, "a").astype(float) - image).mean() for s in (0.2, 0.5, 1)]
    assert 0 < distances[0] < distances[1] < distances[2]
    is_random = not np.array_equal(found, drift.drift_image(image, kind, 0.7, 3, "b.png"))
    assert is_random == (kind in ("occlusion", "noise"))


def test_each_drift_of_an_image_does_what_it_says() -> None:
    image = GREY / 255.0
    rng = np.random.default_rng(0)
    covered = drift.occlusion(image, 0.5, rng)
    assert (covered == 0).sum() == round(0.6 * 0.5 * 30) ** 2
    assert np.array_equal(covered[covered > 0], image[covered > 0])
    assert drift.dark(image, 1, rng) == pytest.approx(0.1 * image)
    assert drift.bright(image, 1, rng) == pytest.approx(1 - 0.1 * (1 - image))
    assert drift.contrast(image, 0.5, rng) == pytest.approx(0.5 + 0.55 * (image - 0.5))
    assert np.ptp(drift.blur(image, 0.5, rng)) < 0.5 * np.ptp(image)
    blocks = drift.resolution(image, 0.4, rng)  # squares of 4 pixels
    assert blocks[:4, 4:8] == pytest.approx(image[:4, 4:8].mean())
    assert blocks[28:, 36:] == pytest.approx(image[28:, 36:].mean())
    noisy = drift.noise(np.full((200, 200), 0.5), 0.1, rng)
    assert noisy.std() == pytest.approx(0.05, rel=0.02)


def test_drifts_of_labels_change_shares_classes_or_labels() -> None:
    labels, rng = np.repeat(np.arange(5), 2000), np.random.default_rng(4)
    assert drift.label_shift(labels, 0, rng).tolist() == list(range(10_000))
    shares = np.bincount(labels[drift.label_shift(labels, 0.8, rng)]) / 10_000
    assert np.ptp(shares) > 0.2
    assert np.unique(labels[drift.class_shift(labels, 0.5, rng)]).size == 3
    assert np.unique(labels[drift.class_shift(labels, 1, rng)]).size == 1
    polluted = drift.pollute(labels, 0.3, rng)
    assert (polluted != labels).mean() == pytest.approx(0.3, abs=1e-3)
    assert np.bincount(polluted[polluted != labels]).min() > 500
    with pytest.raises(DataError, match="all labels are of one class"):
        drift.pollute(np.zeros(4, dtype=np.int64), 0.5, rng)


def test_the_command_writes_folders_and_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for name, image in (("sub/a.png", GREY), ("b.bmp", COLOUR)):
        sink = io.BytesIO()
        Image.fromarray(image).save(sink, format=name[-3:])
        (tmp_path / "in" / name).write_bytes(sink.getvalue())
    given = ["drift", str(tmp_path / "in"), "--kind", "dark", "--strength", "0.5"]
    assert main([*given, "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 2
    written = np.asarray(Image.open(tmp_path / "out" / "sub" / "a.png"))
    assert np.array_equal(written, drift.drift_image(GREY, "dark", 0.5, 0, "sub/a.png"))
    assert np.asarray(Image.open(tmp_path / "out" / "b.png")).shape == COLOUR.shape
    labels = np.arange(60) % 3
    np.savez(tmp_path / "set.npz", x=np.zeros((60, 8, 8), np.uint8), label=labels, note=np.array("kept"))
    for kind, number in (("class_shift", 40), ("pollution", 60), ("noise", 60)):
        out = tmp_path / f"{kind}.npz"
        assert main(["drift", str(tmp_path / "set.npz"), "--kind", kind, "--strength", "0.5", "--out", str(out)]) == 0
        with np.load(out) as held:
            assert (len(held["x"]), len(held["label"]), str(held["note"])) == (number, number, "kept")
            changed = held["x"].any() if kind == "noise" else not np.array_equal(held["label"], labels)
            assert changed


@pytest.mark.parametrize(
    ("source", "kind", "strength", "message"),
    [
        (".", "fog", 0.5, "there is no drift 'fog'; give one of occlusion"),
        (".", "dark", 1.5, "strength 1.5: give a number from 0, no drift, to 1"),
        (".", "pollution", 0.5, "drift pollution needs labels, and"),
        ("a.npz", "dark", 0.5, "has no array 'x', only y; drift dark needs it"),
        (".", "dark", 0.5, "holds no .png or"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, source: str, kind: str, strength: float, message: str) -> None:
    np.savez(tmp_path / "a.npz", y=np.zeros(3))
    with pytest.raises((SpecError, DataError), match=message):
        drift.drift(str(tmp_path / source), str(tmp_path / "out"), kind, strength)


# -- studies of images as models see them ----------------------------------------------------------------------------


@pytest.mark.usefixtures("in_process")
def test_a_study_of_drifted_images_as_models_see_them(tmp_path: Path) -> None:
    true = (np.arange(80) % 4 + (np.arange(80) % 10 == 7)) % 4  # the model gets eight wrong
    images = {"x": np.stack([pixels(number) for number in range(80)]), "label": true, "camera": np.arange(80) // 40}
    np.savez(tmp_path / "scans.npz", **images)
    (tmp_path / "more").mkdir()
    drift.drift(f"{tmp_path}/scans.npz", f"{tmp_path}/more/noisy.npz", "noise", 0.9)
    save_file(trained().state_dict(), tmp_path / "model.safetensors")
    content = small_spec(str(tmp_path), str(tmp_path), sample={"method": "srs", "budget": 5})
    for name in ("net", "other"):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content | {"transform": "small_pictures:to_input"}))
    one = {"models": [str(tmp_path / "net.yaml")], "by": "camera", "repetitions": 3}
    files = [f"{tmp_path}/scans.npz", f"{tmp_path}/more"]
    results = results_of(spec_of(files[0], tmp_path / "out", **one, **{"cases": files}))
    assert [case["case"] for case in results["cases"]] == ["scans", "noisy"]
    assert results["cases"][0]["truth"] == {"0": 0.9, "1": 0.9}
    net = trained().eval()
    for name in ("scans", "noisy"):
        made = np.load(tmp_path / "out" / "cases" / f"{name}.npz")
        seen = [
            pixels(i) if name == "scans" else drift.drift_image(pixels(i), "noise", 0.9, 0, str(i)) for i in range(80)
        ]
        with torch.inference_mode():
            output = net(torch.tensor(np.stack([to_input(one) for one in seen]))).numpy()
        assert "x" not in made
        assert np.allclose(made["output"], output, atol=1e-5)
        assert (made["prediction"].tolist(), made["label"].tolist()) == (output.argmax(1).tolist(), true.tolist())
    two = [str(tmp_path / f"{name}.yaml") for name in ("net", "other")]
    made = list(prepared([CaseSpec(path=files[0])], two, open_store(f"{tmp_path}/two")))
    assert [case.name for case in made] == ["scans-net", "scans-other"]
    np.savez(tmp_path / "toy.npz", **labelled())
    with pytest.raises(DataError, match=r"toy\.npz has no array 'x' of images"):
        list(prepared([CaseSpec(path=f"{tmp_path}/toy.npz")], two, open_store(f"{tmp_path}/two")))
