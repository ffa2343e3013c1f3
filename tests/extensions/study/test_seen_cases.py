"""Cases that a study makes: drifted, or seen by a model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_model import trained
from small_pictures import pixels, to_input
from small_spec import small_spec
from small_study import labelled, results_of, run_here, spec_of

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.study import experiment
from opacc_ray.extensions.study.drift import drift_image, parse_drift


@pytest.fixture
def case(tmp_path: Path) -> Path:
    np.savez(tmp_path / "toy.npz", **labelled())
    return tmp_path / "toy.npz"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_run", run_here)


TRUE = (np.arange(80) % 4 + (np.arange(80) % 10 == 7)) % 4
"""Labels of 80 pictures, of which the model gets eight wrong."""


def images(folder: Path) -> Path:
    np.savez(
        folder / "scans.npz",
        x=np.stack([pixels(number) for number in range(80)]),
        label=TRUE,
        camera=np.arange(80) // 40,
    )
    save_file(trained().state_dict(), folder / "model.safetensors")
    content = small_spec(str(folder), str(folder), sample={"method": "srs", "budget": 5})
    (folder / "net.yaml").write_text(json.dumps(content | {"transform": "small_pictures:to_input"}))
    return folder / "scans.npz"


def test_a_study_of_drifted_images_as_a_model_sees_them(tmp_path: Path) -> None:
    given = {"models": [str(tmp_path / "net.yaml")], "drifts": ["noise:0.9", "label_shift"], "by": "camera"}
    results = results_of(spec_of(images(tmp_path), tmp_path / "out", **given, repetitions=3))
    assert [case["case"] for case in results["cases"]] == ["scans", "scans-noise-0.9", "scans-label_shift-0.5"]
    net = trained().eval()
    for name, kind in (("scans", None), ("scans-noise-0.9", "noise")):
        made = np.load(tmp_path / "out" / "cases" / f"{name}.npz")
        seen = [pixels(i) if kind is None else drift_image(pixels(i), kind, 0.9, 0, str(i)) for i in range(80)]
        with torch.inference_mode():
            output = net(torch.tensor(np.stack([to_input(one) for one in seen]))).numpy()
        assert "x" not in made
        assert np.allclose(made["output"], output, atol=1e-5)
        assert made["prediction"].tolist() == output.argmax(1).tolist()
        assert made["label"].tolist() == TRUE.tolist()
    assert results["cases"][0]["truth"] == {"0": 0.9, "1": 0.9}


@pytest.mark.slow
def test_two_models_see_the_same_drifts(tmp_path: Path) -> None:
    file = images(tmp_path)
    (tmp_path / "other.yaml").write_text((tmp_path / "net.yaml").read_text())
    models = [str(tmp_path / f"{name}.yaml") for name in ("net", "other")]
    results = results_of(spec_of(file, tmp_path / "out", models=models, drifts=["dark:0.9"], repetitions=3))
    names = [case["case"] for case in results["cases"]]
    assert names == ["scans-net", "scans-other", "scans-net-dark-0.9", "scans-other-dark-0.9"]
    made = [dict(np.load(tmp_path / "out" / "cases" / f"{name}.npz")) for name in names]
    assert all((made[2][key] == made[3][key]).all() for key in made[2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mist:0.5", "there is no drift 'mist'"),
        ("dark:2", "strength 2: give a number from 0"),
        ("dark:much", "write KIND:STRENGTH, such as dark:0.5"),
        ("pollution", "'pollution' is one of training data"),
    ],
)
def test_a_drift_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_drift(text)


def test_what_cannot_be_made_is_one_sentence(case: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"drift dark is one of images, which a model must see; add --model"):
        results_of(spec_of(case, tmp_path / "out", drifts=["dark:0.5"]))
    images(tmp_path)
    with pytest.raises(DataError, match=r"toy\.npz has no array 'x' of images"):
        results_of(spec_of(case, tmp_path / "out", models=[str(tmp_path / "net.yaml")]))
