"""What is sent to a cluster of a user's folder: the modules that a spec needs, found without running them."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from opacc_ray.errors import SpecError
from opacc_ray.spec import modules_of, parse_spec, sources_of, users_files
from opacc_ray.spec import user_modules as looked_at

FILES = {
    "models.py": "import numpy\nfrom parts.blocks import Block\ndef net():\n    import late\n",
    "parts/__init__.py": "",
    "parts/blocks.py": "from . import shapes\nimport models\nraise SystemExit('it was run')\n",
    "parts/shapes.py": "",
    "parts/names.json": "[]",
    "parts/.hidden": "",
    "parts/__pycache__/blocks.cpython-311.pyc": "",
    "late.py": "",
    "unrelated.py": "",
    "numpy.py": "raise SystemExit('in place of numpy')\n",
    "weights.pt": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return str(tmp_path)


def test_imports_are_followed_and_nothing_else_is_taken(folder: str) -> None:
    found = users_files(["models"], folder)
    parts = ("__init__.py", "blocks.py", "names.json", "shapes.py")
    assert sorted(found) == ["late.py", "models.py", *(f"parts/{name}" for name in parts)]
    assert all(file.is_relative_to(folder) for file in found.values())


def test_installed_modules_and_this_package_are_not_sent(folder: str) -> None:
    Path(folder, "models.py").write_text("import torch, opacc_ray, json\n")
    assert list(users_files(["models", "sklearn.datasets"], folder)) == ["models.py"]


def test_names_of_a_spec_lead_to_its_modules() -> None:
    content = {
        "name": "a",
        "pool": {"uri": "pool", "format": "images"},
        "model": {"factory": "mine.models:net"},
        "transform": "other:to_input",
        "sample": {"method": "srs", "budget": 3},
        "output": "out",
    }
    assert modules_of(parse_spec(content, "spec")) == ["mine.models", "other"]
    for factory in ("timm:resnet18", "opacc_ray.extensions.demo.digits:digits_cnn"):
        assert modules_of(parse_spec(content | {"model": {"factory": factory}}, "spec")) == ["other"]


def test_module_in_a_zip_is_read_and_not_sent(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile(f"{folder}/code.zip", "w") as archive:
        archive.writestr("zipped.py", "import late\n")
    monkeypatch.syspath_prepend(f"{folder}/code.zip")
    assert sorted(sources_of(["zipped"], folder).files) == ["late.py", "zipped.py"]
    with pytest.raises(SpecError, match=r"module 'zipped' is in .*code\.zip, .*; unpack it"):
        users_files(["zipped"], folder)


def test_data_beside_code_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked_at, "MAX_BYTES", 1000)
    Path(folder, "parts", "weights.bin").write_bytes(bytes(2000))
    with pytest.raises(SpecError, match=r"with the largest file parts/weights\.bin; move weights and data out of them"):
        users_files(["models"], folder)


def test_files_of_imports_are_found_one_by_one(folder: str) -> None:
    """Not the whole package: a module that no statement leads to decides nothing."""
    Path(folder, "parts", "unused.py").write_text("")
    Path(folder, "parts", "deep").mkdir()
    Path(folder, "parts", "deep", "__init__.py").write_text(
        "from .. import shapes\nfrom .own import *\nfrom . import f\n"
    )
    Path(folder, "parts", "deep", "own.py").write_text("import no_such_module, torch.nn, sys\n")
    Path(folder, "parts", "blocks.py").write_text("from .deep import own as mine\n")
    Path(folder, "broken.py").write_text("def f(:\n")
    Path(folder, "late.py").write_text("import broken\n")
    found = sources_of(["models"], folder)
    parts = ("__init__.py", "blocks.py", "deep/__init__.py", "deep/own.py", "shapes.py")
    assert sorted(found.files) == ["broken.py", "late.py", "models.py", *(f"parts/{name}" for name in parts)]
    assert found.installed == {"numpy", "torch", "sys"}
    assert sources_of(["nowhere.deep"], folder).files == {}
