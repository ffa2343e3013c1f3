"""Features that runs share: reused by runs that differ in nothing that decides them, added to, fixed."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from extracting_here import extracting_here
from picture_audits import write_scans
from PIL import Image
from small_model import Net
from small_pictures import picture, to_input
from small_spec import small_spec

from opacc_ray.audit import verbs
from opacc_ray.documents import sealed
from opacc_ray.errors import DataError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.extract.feature_set import plan_set
from opacc_ray.lake.examples import Plan
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.slow

SURPRISED = {"method": "deepest", "budget": 9, "auxiliary": "dsa"}
COVERED = {"method": "deepreduce", "budget": 9}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 pictures of the field, 24 of the training data, and weights."""
    home = tmp_path_factory.mktemp("lake")
    write_scans(home, 40, range(200, 224))
    return home


def content(lake: Path, home: Path, **sections: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "reference": {"uri": f"{lake}/train"},
        "extract": {"batch_size": 4, "shard_size": 10},
        "sample": {"method": "srs", "budget": 8},
    }
    return small_spec(str(lake), str(home / "audits"), **given | sections)


@pytest.fixture
def spec(lake: Path, tmp_path: Path) -> Any:
    return lambda **sections: content(lake, tmp_path, **sections)


Made = list[tuple[tuple[str, ...], bool, str]]


def run_spec(given: dict[str, Any]) -> tuple[Run, Made]:
    """The run, and what was made of the pool and the reference for it."""
    with extracting_here() as made:
        return verbs.first_round(parse_spec(given, "spec"), trial=True), list(made)


def features_of(run: Run) -> dict[str, bytes]:
    """What was extracted, without what samplers keep next to it and what each process had loaded."""
    keys = [entry.key for entry in run.features.list() if not entry.key.startswith(("derived/", "loaded-"))]
    return {key: run.features.read(key) for key in keys}


def columns_of(run: Run, *names: str) -> list[Any]:
    with run_module.open_view(run, names) as view:
        return [np.concatenate(view.map(getattr, name)) for name in names]


# -- reused ----------------------------------------------------------------------------------------------


OTHERS: dict[str, dict[str, Any]] = {
    "method": {"sample": {"method": "neyman", "budget": 8}},
    "fewer features": {"extract": {"batch_size": 4, "shard_size": 10, "features": ["output"]}},
    "in another order": {
        "extract": {"batch_size": 4, "shard_size": 10, "features": ["confidence", "output", "hidden"]}
    },
}


@pytest.fixture(scope="module")
def stored(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run, dict[str, bytes]]:
    """An output with one run, which only gets further runs, and what was extracted for it."""
    home = tmp_path_factory.mktemp("stored")
    first, made = run_spec(content(lake, home))
    assert len(made) == 4
    return home, first, features_of(first)


@pytest.fixture(scope="module")
def surprised(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An output with one run that compares with a reference, kept a second time; and the URI of the run."""
    home = tmp_path_factory.mktemp("surprised")
    run, _ = run_spec(content(lake, home, sample=SURPRISED))
    shutil.copytree(home / "audits", home / "kept")
    return home, run.uri


@pytest.fixture
def surprised_run(surprised: tuple[Path, str]) -> Run:
    """The run of `surprised` as it was made, in its place."""
    home, uri = surprised
    shutil.rmtree(home / "audits", ignore_errors=True)
    shutil.copytree(home / "kept", home / "audits")
    return Run.open(uri)


@pytest.mark.parametrize("kind", OTHERS)
def test_run_that_differs_in_nothing_that_decides_features_reuses_them(
    kind: str, stored: tuple[Path, Run, dict[str, bytes]], lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, first, before = stored
    monkeypatch.setattr(verbs, "check_model", None)  # no example is tried
    second, again = run_spec(content(lake, home, **OTHERS[kind]))
    assert again == []
    assert second.rounds() == [1]
    assert second.features.uri == first.features.uri
    assert features_of(second) == before
    assert not [entry for entry in second.store.list() if entry.key.startswith("features/")]
    assert verify(second.uri).faults == []


def test_digest_names_all_that_decides_features(lake: Path, tmp_path: Path) -> None:
    def digest(listing: str = "x", **sections: Any) -> str:
        given = parse_spec(content(lake, tmp_path, **sections), "spec")
        link = plan_set(given, Plan((), listing), None)
        assert link is not None
        return link.digest

    model = {"factory": "small_model:network", "weights": f"{lake}/model.safetensors"}
    pool = {"uri": f"{lake}/pool", "format": "images"}
    others = [
        digest("y"),
        digest(pool=pool | {"uri": f"{lake}/train"}),
        digest(pool=pool | {"alpha": "drop"}),
        digest(pool=pool | {"format": "npy"}),
        digest(model=model | {"factory": "small_model:value_network"}),
        digest(model=model | {"arguments": {"a": 1}}),
        digest(model=model | {"sha256": "0" * 64}),
        digest(model=model | {"hidden_layer": "first"}),
        digest(model=model | {"task": "regression"}),
        digest(model=model | {"output": "probabilities"}),
        digest(model=model | {"output": "logit", "threshold": 0.2}),
        digest(transform="small_pictures:to_input"),
        *(digest(extract={key: 7}) for key in ("batch_size", "shard_size", "threads_per_actor")),
        digest(extract={"precision": "bfloat16"}),
        digest(extract={"features": ["output"]}),
    ]
    assert len({digest(), *others}) == 1 + len(others)
    extract = {"batch_size": 4, "shard_size": 10}
    same: list[dict[str, Any]] = [
        {"sample": {"method": "srs", "budget": 20}},
        {"seed": 5},
        {"name": "second"},
        {"manifest": {"link": "https://view/{id}"}},
        {"labels": {"conflict": "latest"}},
        {"extract": extract | {"actors": 1, "node_labels": {"zone": "a"}}},
    ]
    assert {digest(**sections) for sections in same} == {digest()}


def test_reference_of_another_threshold_is_another(lake: Path, tmp_path: Path) -> None:
    """Traces are compared by predicted class, which the threshold decides."""
    from opacc_ray.extract import reference

    def digest(**model: Any) -> str:
        sections = {"model": {"factory": "small_model:network", "output": "logit"} | model, "sample": SURPRISED}
        return reference.digest(parse_spec(content(lake, tmp_path, **sections), "spec"), Plan((), "x"))

    assert digest() == digest(threshold=0.5) != digest(threshold=0.2)


def test_model_without_weights_keeps_its_features_to_its_run(spec: Any, tmp_path: Path) -> None:
    model = {"factory": "small_model:network"}
    run, made = run_spec(spec(model=model))
    other, again = run_spec(spec(model=model, name="second"))
    assert len(made) == len(again) == 4
    assert run.features.uri == f"{run.uri}/features"
    assert run.header.features is None
    assert not (tmp_path / "audits" / "features").exists()
    assert features_of(run) == features_of(other)


def test_output_that_is_copied_still_works(surprised_run: Run, tmp_path: Path) -> None:
    shutil.move(Path(surprised_run.uri).parent, tmp_path / "elsewhere")
    moved = Run.open(str(tmp_path / "elsewhere" / surprised_run.name))
    assert len(verbs.select(moved, "deepest", 9, {"auxiliary": "dsa"})) == 9
    assert [fault for fault in verify(moved.uri).faults if "reference" not in fault.file] == []


def test_classes_too_few_for_stored_features_are_refused_before_a_run_is_made(spec: Any, tmp_path: Path) -> None:
    run_spec(spec())
    given = spec(name="second")
    given["model"] |= {"classes": ["a"]}
    with pytest.raises(DataError, match=r"model\.classes names 1 classes"):
        run_spec(given)
    assert not list((tmp_path / "audits").glob("second-*"))


# -- added -----------------------------------------------------------------------------------------------


def test_surprise_is_added_from_the_stored_hidden_layer_with_the_same_bits(
    spec: Any, lake: Path, tmp_path: Path
) -> None:
    run_spec(spec())
    for auxiliary, names in (("dsa", ("dsa",)), ("lsa", ("lsa",))):
        run, made = run_spec(spec(sample=SURPRISED | {"auxiliary": auxiliary}))
        ours = [item for item in made if item[0] != ("hidden", "prediction")]  # those are the reference's
        assert [item[:2] for item in ours] == [(names, False)] * 4
        assert len(made) - len(ours) == (3 if auxiliary == "dsa" else 0)
        assert verify(run.uri).faults == []
        at_once, _ = run_spec(content(lake, tmp_path / auxiliary, sample=SURPRISED | {"auxiliary": auxiliary}))
        for name in ("hidden", auxiliary):
            assert columns_of(run, name)[0].tobytes() == columns_of(at_once, name)[0].tobytes()
        added = {key: data for key, data in features_of(run).items() if key in features_of(at_once)}
        assert added == features_of(at_once)
        assert run.read_selection(1).to_dict() == at_once.read_selection(1).to_dict()
    assert len(list(Path(run.features.uri).glob("*/index.json"))) == 2


def test_coverage_of_each_setting_is_a_set_of_its_own(spec: Any) -> None:
    first, _ = run_spec(spec())
    run, made = run_spec(spec(sample=COVERED))
    assert [item[:2] for item in made] == [(("hidden", "output", "confidence", "coverage", "prediction"), True)] * 4
    again, made = run_spec(spec(sample=COVERED, name="again"))
    assert (made, again.features.uri) == ([], run.features.uri)
    other, made = run_spec(
        spec(sample=COVERED, extract={"batch_size": 4, "shard_size": 10, "coverage": {"criterion": "kmnc:2"}})
    )
    assert {item[0][-2:] for item in made} >= {("coverage", "prediction")}
    assert columns_of(run, "coverage")[0].shape != columns_of(other, "coverage")[0].shape
    assert len({first.features.uri, run.features.uri, other.features.uri}) == 3


def test_the_model_runs_once_for_all_features(spec: Any) -> None:
    extract = {"batch_size": 4, "shard_size": 10, "features": ["output", "confidence", "dsa", "coverage"]}
    run, made = run_spec(spec(extract=extract))
    assert [item[0] for item in made if item[1]][3:] == [
        ("hidden", "output", "confidence", "coverage", "prediction")  # dsa is computed from the hidden layer
    ] * 4
    assert [item[0] for item in made if not item[1]] == [("dsa",)] * 4
    index = run.read_index()
    assert index is not None
    assert list(index.features) == ["hidden", "output", "confidence", "dsa", "coverage", "prediction"]


def test_two_drivers_at_once_end_in_the_same_bytes(spec: Any) -> None:
    """The second starts when the first has two shards, and overtakes it."""
    alone, _ = run_spec(spec(sample=SURPRISED, output=spec()["output"] + "-alone"))
    given = parse_spec(spec(sample=SURPRISED), "spec")
    other: list[Run] = []

    def overtake(done: int, total: int) -> None:
        if done == 5 and not other:
            other.append(verbs.first_round(parse_spec(spec(sample=SURPRISED, name="second"), "spec")))

    with extracting_here() as made:
        first = verbs.first_round(given, overtake)
    assert other[0].features == first.features
    assert len(made) > 7
    assert features_of(first) == features_of(alone)
    assert verify(first.uri).faults == verify(other[0].uri).faults == []


# -- examples that cannot be used ------------------------------------------------------------------------


class Blank(Net):
    """Gives NaN in its hidden layer for picture 7, and for no other."""

    def __init__(self) -> None:
        super().__init__()
        self.mark = torch.from_numpy(_pixels(7)).flatten()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x.flatten(1)))
        is_seven = (x.flatten(1) == self.mark).all(1, keepdim=True)
        self.last(torch.where(is_seven, torch.nan, hidden))
        return torch.nan_to_num(hidden) @ self.last.weight.T


def _pixels(number: int) -> Any:
    return to_input(np.asarray(Image.open(io.BytesIO(picture(number)))))


def test_example_left_out_for_a_feature_that_a_run_does_not_want_is_not_left_out_of_it(spec: Any, lake: Path) -> None:
    model = {"factory": "runs.test_feature_sets:Blank", "weights": f"{lake}/model.safetensors"}
    excluding = {"batch_size": 4, "shard_size": 10, "on_bad_item": "exclude"}
    full, _ = run_spec(spec(model=model, extract=excluding))
    few, made = run_spec(spec(model=model, extract=excluding | {"features": ["output"]}))
    counts = [run.read_index().num_examples for run in (full, few)]  # type: ignore[union-attr]
    assert counts == [39, 40]
    assert len(made) == 4


# -- fixed -----------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("part-000001.parquet", flip),
        ("part-000001.parquet", lambda path: path.write_bytes(b"")),
        ("index.json", Path.unlink),
        ("dsa-*/part-000002.parquet", Path.unlink),
        ("dsa-*/index.json", lambda path: path.write_bytes(b"")),
        ("set.json", flip),
    ],
)
def test_damage_of_a_set_is_named_and_fixed_by_any_run_of_it(
    file: str, damage: Any, surprised_run: Run, lake: Path
) -> None:
    first = surprised_run
    before = features_of(first)
    [path] = Path(first.features.uri).glob(file)
    damage(path)
    assert any(
        str(path.name) in fault.problem or str(path.parent) in fault.problem for fault in verify(first.uri).faults
    )
    second, _ = run_spec(content(lake, Path(first.uri).parents[1], sample=SURPRISED, seed=4))
    assert features_of(second) == before
    assert verify(first.uri).faults == verify(second.uri).faults == []


def test_link_of_a_header_leads_nowhere_else(spec: Any) -> None:
    run, _ = run_spec(spec())
    path = Path(run.uri) / "spec.json"
    header = json.loads(path.read_text())
    for folder in ("../../features/0123456789abcdef", "/etc", "../features/../../x"):
        header["features"]["folder"] = folder
        path.write_text(json.dumps(sealed(header)))
        with pytest.raises(DataError, match=r"features\.folder"):
            Run.open(run.uri)


# -- without a cluster -----------------------------------------------------------------------------------


@pytest.mark.processes
def test_second_audit_of_a_pool_extracts_nothing_and_starts_no_ray(spec: Any, tmp_path: Path) -> None:
    """As a command in a process of its own, which imports neither Ray nor torch: the model is tried in a child."""
    run_spec(spec())
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec(sample={"method": "neyman", "budget": 8}, name="second")))
    code = (
        "import sys; from opacc_ray.cli.main import main; code = main(['run', *sys.argv[1:], '--json']);"
        "print(sorted({'ray', 'torch', 'boto3', 'pandas'} & sys.modules.keys()), file=sys.stderr); sys.exit(code)"
    )
    root = Path(__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(root.parent), str(root)])
    done = subprocess.run([sys.executable, "-c", code, str(path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
    assert json.loads(done.stdout)["n"] == 8
    assert "4 of 4 shards" in done.stderr
