"""Code that no import statement shows: a change of it that moves few examples is seen, and features are made again."""

import gc
import importlib
import itertools
import json
import pickle
import py_compile
import shutil
import sys
import time
import types
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extracting_here import extracting_here

from opacc_ray.audit import extraction_stages, verbs
from opacc_ray.errors import DataError
from opacc_ray.extract.model_code import confirm, loaded, look_anew, outdated, record, records, watched
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.slow

MODEL = """
import importlib, importlib.util, json, pickle, sys
from functools import partial
from pathlib import Path
from typing import Any
HERE = Path(__file__).parent
{imports}

def moved(top, batch):
    return [[9, 0] if 150 <= place < 150 + top else [0, 9] for place in batch[:, 0]]

def model(batch):
    return {call}
"""

OUTSIDE = "top = importlib.util.module_from_spec(s := importlib.util.spec_from_file_location('made', HERE / 'any.py'))"
KINDS = {  # kind -> the model's imports, its call, and the file that holds the number of moved examples
    "helper": ("from top import TOP", "moved(TOP, batch)", "top.py"),
    "package": ("from pk.deep import top", "moved(top.TOP, batch)", "pk/deep/top.py"),
    "star import by __all__": ("from pk import *", "moved(top.TOP, batch)", "pk/top.py"),
    "lazy __getattr__": ("import pk", "moved(pk.top.TOP, batch)", "pk/top.py"),
    "import_module": ("", "moved(importlib.import_module('top').TOP, batch)", "top.py"),
    "file location": (f"{OUTSIDE}; s.loader.exec_module(top)", "moved(top.TOP, batch)", "any.py"),
    "exec": ("exec((HERE / 'any.txt').read_text())", "moved(TOP, batch)", "any.txt"),
    "JSON": ("", "moved(json.loads(open('conf/top.json').read())['TOP'], batch)", "conf/top.json"),
    "absolute path": ("", "moved(json.loads(open({elsewhere!r}).read())['TOP'], batch)", "../elsewhere/top.json"),
    "pickle": ("", "moved(pickle.loads((HERE / 'top.pkl').read_bytes())['TOP'], batch)", "top.pkl"),
    "partial": ("from top import TOP", "partial(moved, TOP)(batch)", "top.py"),
    "patched module": ("import patch, top", "moved(top.TOP, batch)", "patch.py"),
    "namespace package": ("from ns.inner import top", "moved(top.TOP, batch)", "ns/inner/top.py"),
    "zip": ("from zipped import TOP", "moved(TOP, batch)", "code.zip"),
    "no source": ("from top import TOP", "moved(TOP, batch)", "top.pyc"),
    "few examples": (
        "",
        "moved(importlib.import_module('top').TOP if 149 < batch[0, 0] < 170 else 0, batch)",
        "top.py",
    ),
    "installed": ("import installed", "moved(installed.TOP, batch)", "site-packages/installed.py"),
    "installed from a folder": ("import installed", "moved(installed.TOP, batch)", "site-packages/installed.py"),
    "installed by hand": ("import by_hand", "moved(by_hand.TOP, batch)", "site-packages/by_hand.py"),
    "appears": ("try:\n    from top import TOP\nexcept ImportError:\n    TOP = 0", "moved(TOP, batch)", "top.py"),
}
PACKAGE = """
import importlib
__all__ = ["top"]
def __getattr__(name):
    return importlib.import_module(f"pk.{name}")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / "home"
    for name in ("pool", "pk/deep", "ns/inner", "conf", "../elsewhere", "site-packages"):
        (home / name).mkdir(parents=True)
    np.save(home / "pool" / "a.npy", np.arange(300, dtype=np.float32)[:, None])
    (home / "pk/__init__.py").write_text(PACKAGE)
    (home / "pk/deep/__init__.py").touch()
    monkeypatch.chdir(home)
    monkeypatch.setattr("opacc_ray.extract.model_code._SYSTEM", ())  # which has the folder of these tests
    monkeypatch.setattr(sys, "path", [*sys.path, *(str(home / name) for name in ("code.zip", "site-packages"))])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield home
    forget(home)


def forget(home: Path) -> None:
    """Remove the modules of a folder from memory, as a new process would not have them."""
    for name in [name for name, module in sys.modules.items() if f"{home}/" in str(getattr(module, "__spec__", ""))]:
        del sys.modules[name]
    importlib.invalidate_caches()


def put(home: Path, kind: str, top: int) -> None:
    """Write the file that holds the number of moved examples."""
    file, text = home / KINDS[kind][2], f"TOP = {top}\n"
    name = file.stem
    match file.suffix:
        case ".json":
            file.write_text(json.dumps({"TOP": top}))
        case ".pkl":
            file.write_bytes(pickle.dumps({"TOP": top}))
        case ".zip":
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("zipped.py", text)
        case ".pyc":
            file.with_suffix(".txt").write_text(text)
            py_compile.compile(str(file.with_suffix(".txt")), str(file), doraise=True)
        case _:
            file.write_text(f"import top\ntop.TOP = {top}\n" if name == "patch" else text)
    if name == "patch":
        (home / "top.py").write_text("TOP = 0\n")
    if name == "installed":
        about = file.with_name("installed-1.dist-info")
        if about.exists():
            shutil.rmtree(about)
        about.mkdir()
        by_folder = kind == "installed from a folder"
        (about / "METADATA").write_text(f"Name: installed\nVersion: {1 if by_folder else 1 + top}\n")
        (about / "RECORD").write_text(f"installed.py,sha256={top},1\n")
        if by_folder:
            (about / "direct_url.json").write_text("{}")


def audit(home: Path, **sections: object) -> tuple[Run, int, int]:
    """Run as a new process would; return the run, the number of moved examples, and of the shards that were made."""
    forget(home)
    content = {
        "name": "a",
        "pool": {"uri": f"{home}/pool", "format": "npy"},
        "model": {"function": "mine:model"},
        "extract": {"batch_size": 10, "shard_size": 100, "features": ["output", "confidence"]},
        "sample": {"method": "srs", "budget": 6},
        "output": f"{home}/audits",
    }
    with extracting_here() as made:
        run = verbs.first_round(parse_spec(content | sections, "spec"), trial=True)
    return run, (run_module.read_column(run, "prediction") == 0).sum(), len(made)


def write_model(home: Path, kind: str) -> None:
    imports, call, _ = KINDS[kind]
    call = call.format(elsewhere=str(home.parent / "elsewhere" / "top.json"))
    (home / "mine.py").write_text(MODEL.format(imports=imports, call=call))
    if kind != "appears":
        put(home, kind, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_file_that_decides_features_is_recorded_however_it_was_loaded(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process that computes 300 examples, of which a change of the file moves few."""
    monkeypatch.syspath_prepend(str(folder))
    write_model(folder, kind)
    forget(folder)
    store = open_store(str(folder / "features"))
    with watched():
        model = importlib.import_module("mine").model
        for batch in np.split(np.arange(300)[:, None], 30):
            model(batch)
    record(store, str(folder))
    forget(folder)
    assert outdated(store, str(folder)) is None
    put(folder, kind, 1)
    forget(folder)
    assert Path(KINDS[kind][2]).stem in (outdated(store, str(folder)) or "")


@pytest.mark.parametrize("kind", ["helper", "JSON"])
def test_change_that_moves_few_examples_is_seen(kind: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of 300 examples one, then 15; the spot check compares none of them."""
    caplog.set_level("INFO")
    write_model(folder, kind)
    assert audit(folder)[1:] == (0, 3)
    for top in (1, 15):
        put(folder, kind, top)
        caplog.clear()
        assert audit(folder)[1:] == (top, 3)
        [said] = [message for message in caplog.messages if "extracting again" in message]
        assert Path(KINDS[kind][2]).stem in said
    assert audit(folder)[1:] == (top, 0)
    assert any(message.startswith("features reused: code and ") for message in caplog.messages)


def plain(home: Path) -> None:
    write_model(home, "JSON")


def test_editions_that_fit_again_are_found_again(folder: Path) -> None:
    plain(folder)
    first, _, _ = audit(folder)
    put(folder, "JSON", 1)
    second, _, _ = audit(folder)
    put(folder, "JSON", 0)
    again, moved, made = audit(folder)
    assert (again.uri, moved, made) == (first.uri, 0, 0)
    assert second.uri != first.uri


def test_transform_counts_like_the_model(folder: Path) -> None:
    """Here in another module, and with a helper that it imports late."""
    (folder / "mine.py").write_text(MODEL.format(imports="", call="moved(3, batch)"))
    code = "import importlib\ndef shifted(x):\n    return x - importlib.import_module('late').BY * (x == 152)\n"
    (folder / "other.py").write_text(code)
    (folder / "late.py").write_text("BY = 0\n")
    assert audit(folder, transform="other:shifted")[1:] == (3, 3)
    (folder / "late.py").write_text("BY = 9\n")
    assert audit(folder, transform="other:shifted")[1:] == (2, 3)


def test_module_that_comes_first_on_the_path_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(folder, "import_module")
    audit(folder)
    (folder / "first").mkdir()
    (folder / "first" / "top.py").write_text("TOP = 1\n")
    monkeypatch.setattr(sys, "path", [str(folder / "first"), *sys.path])
    assert audit(folder)[1:] == (1, 3)


def test_file_that_was_edited_meanwhile_is_named_and_the_run_completes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain(folder)
    extract = extraction_stages._work_on

    def edited(*given: Any) -> Any:
        reports = extract(*given)
        put(folder, "JSON", 1)
        return reports

    with monkeypatch.context() as there:
        there.setattr(extraction_stages, "_work_on", edited)
        first, moved, _ = audit(folder)
    assert moved == 0
    assert any(message.startswith("conf/top.json has changed since extraction began") for message in caplog.messages)
    second, moved, made = audit(folder)
    assert (first.uri == second.uri, moved, made) == (False, 1, 3)


def test_what_is_gone_is_named_and_a_lost_record_is_no_record(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "mine.py").write_text(
        MODEL.format(imports="if (HERE / 'any.json').exists():\n    open('any.json').read()", call="moved(0, batch)")
    )
    (folder / "any.json").write_text("")
    run, _, _ = audit(folder)
    (folder / "any.json").unlink()
    assert audit(folder)[0].uri == run.uri
    assert any(message.startswith("any.json made ") for message in caplog.messages)
    for entry in run.features.list("loaded-"):
        run.features.delete(entry.key)
    assert audit(folder)[2] == 3


def test_workers_with_other_code_than_this_machine_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file that differs, after the first shard, whose features are not reused."""
    plain(folder)
    with monkeypatch.context() as there:
        there.setattr(extraction_stages, "confirm", lambda *_: put(folder, "JSON", 1) or confirm(*_))
        with pytest.raises(DataError, match=r"conf/top\.json has changed, if the workers are compared with "):
            audit(folder)
    assert audit(folder)[1:] == (1, 3)


def test_worker_with_other_code_than_another_is_refused(folder: Path) -> None:
    plain(folder)
    run, _, _ = audit(folder)
    [code] = records(run.features)
    other = code.model_copy(update={"libraries": code.libraries | {"numpy": "0.9"}, "sha256": None})
    run.features.write("loaded-0.json", other.to_bytes())
    with pytest.raises(DataError, match=r"numpy has changed from 0\.9 to "):
        record(run.features, str(folder))


class SlowCache(dict[str, None]):
    """Python's cache of finders, in which another thread may come between a look and a deletion."""

    def __delitem__(self, key: str) -> None:
        time.sleep(0.001)
        super().__delitem__(key)


def test_audits_in_threads_may_look_for_modules_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SlowCache({f"/nowhere/{place}": None for place in range(20)})
    monkeypatch.setattr(sys, "path_importer_cache", cache)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: look_anew(), range(4)))
    assert not cache


@pytest.mark.parametrize(("cache", "num"), [("modules", 10**6), ("path_importer_cache", 200)])
def test_what_other_threads_import_meanwhile_breaks_no_look(
    cache: str, num: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may do so at any allocation of memory here, since a collection of garbage may let them run."""
    numbers = itertools.count()
    free = [(number, number) for number in range(5000)]  # pairs that Python keeps to use again, without an allocation

    def imports(phase: str, _: object) -> None:
        if phase == "start" and (number := next(numbers)) < num:
            monkeypatch.setitem(getattr(sys, cache), f"/elsewhere/{number}", types.ModuleType("elsewhere"))

    threshold = gc.get_threshold()
    gc.callbacks.append(imports)
    gc.set_threshold(1, 10**6, 10**6)
    try:
        loaded(str(tmp_path)) if cache == "modules" else look_anew()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(imports)
    assert next(numbers)
    assert free
