"""What is sent to a cluster of a user's folder: the modules that a spec needs, found without running them."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


@pytest.mark.slow
def test_this_package_is_sent_if_it_is_named(folder: str) -> None:
    found = users_files(["opacc_ray"], folder)
    installed = "site-packages" in str(Path(looked_at.__file__))
    assert ("opacc_ray/cli/main.py" in found) is not installed


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
    for factory in ("timm:resnet18", "opacc_ray.demo.model:digits_cnn"):
        assert modules_of(parse_spec(content | {"model": {"factory": factory}}, "spec")) == ["other"]


def test_module_that_is_nowhere_is_refused(folder: str) -> None:
    with pytest.raises(SpecError, match="there is no module 'nowhere'; run this in the folder that holds it"):
        users_files(["nowhere.deep"], folder)


def test_module_that_is_no_python_is_refused(folder: str) -> None:
    Path(folder, "late.py").write_text("def f(:\n")
    with pytest.raises(SpecError, match=r"late\.py is not valid Python"):
        users_files(["models"], folder)


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


def test_packages_without_init_may_be_nested(folder: str) -> None:
    Path(folder, "plain", "inner").mkdir(parents=True)
    Path(folder, "plain", "inner", "net.py").write_text("from .. import other\n")
    Path(folder, "plain", "other.py").write_text("")
    assert sorted(sources_of(["plain.inner.net"], folder).files) == ["plain/inner/net.py", "plain/other.py"]


@pytest.mark.slow
def test_threads_may_look_at_once(folder: str) -> None:
    """As the audits of a fleet do: Python ends two that parse at once with a SystemError, if the collector runs."""
    Path(folder, "models.py").write_text("".join(f"def f{i}(a):\n    return [a + {i} * (a - 1)]\n" for i in range(600)))
    gc.callbacks.append(turn := lambda *_: sum(range(300)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: sources_of(["models"], folder), range(60)))
    finally:
        sys.setswitchinterval(interval)
        gc.callbacks.remove(turn)
    assert all(list(each.files) == ["models.py"] for each in found)
