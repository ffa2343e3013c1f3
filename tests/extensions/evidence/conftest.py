"""Runs of the tests of evidence, prepared once."""

from pathlib import Path

import pytest
from audited_run import label, write_features, write_pool
from restored import Restored

from opacc_ray.audit import accuracy, verbs
from opacc_ray.runs.run import Run


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """A pool; a run of it with a round; its labels; their estimate; and in its place a second round and an estimate."""
    folder = Restored(tmp_path_factory.mktemp("evidence") / "home")
    write_pool(str(folder.home))
    folder.keep("pool")
    run, _ = write_features(str(folder.home))
    selection = verbs.select(run, "srs", 20, {})
    folder.keep("drawn")
    label(run, selection.ids)
    folder.keep("labelled")
    accuracy.estimate(run)
    folder.keep("stated")
    run = Run.open(str(folder.restore("labelled") / "audit"))
    label(run, verbs.next_round(run, 10).ids)
    accuracy.estimate(run)
    folder.keep("two rounds")
    return folder


@pytest.fixture
def home(prepared: Restored) -> Path:
    return prepared.restore("pool")


@pytest.fixture
def drawn(prepared: Restored) -> Run:
    """A run with a round that nobody has labelled."""
    return Run.open(str(prepared.restore("drawn") / "audit"))


@pytest.fixture
def stated(prepared: Restored) -> Run:
    """A run with a labelled round, and an estimate."""
    return Run.open(str(prepared.restore("stated") / "audit"))
