"""A run compared with a CSV of another model's predictions."""

from pathlib import Path

import numpy as np
import pytest

from opacc_ray.cli.main import main
from opacc_ray.extensions.outputs.outputs import list_runs
from opacc_ray.runs.run import Run

N = 400
RNG = np.random.default_rng(0)
TRUTH = RNG.choice(["no", "yes"], N, p=[0.7, 0.3])
OTHER = np.where(TRUTH == "no", "yes", "no")


def write(name: str, said: np.ndarray, id: str = "customer") -> str:
    rows = zip(said, RNG.uniform(0.55, 0.99, N).round(3).tolist(), strict=True)
    Path(name).write_text(f"{id},said,confidence\n" + "".join(f"c{i},{own},{c}\n" for i, (own, c) in enumerate(rows)))
    return name


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A model that is right on 70 %, with 120 labels."""
    monkeypatch.chdir(tmp_path)
    write("old.csv", np.where(RNG.random(N) < 0.7, TRUTH, OTHER))
    assert main(["run", "old.csv", "--columns", "id=customer,prediction=said", "--budget", "120"]) == 0
    [path] = (tmp_path / "audits").glob("old-*")
    Path("truth.csv").write_text("id,label\n" + "".join(f"c{i},{own}\n" for i, own in enumerate(TRUTH)))
    assert main(["labels", "import", str(path), "truth.csv", "--only-selected"]) == 0
    return Run.open(str(path))


def test_a_file_is_compared_by_the_columns_of_the_run_without_a_sample_of_its_own(run: Run) -> None:
    write("new.csv", np.where(RNG.random(N) < 0.95, TRUTH, OTHER))
    write("never.csv", np.full(N, "no"))  # a class that it never predicts
    for _ in range(2):
        assert main(["compare", run.uri, "new.csv"]) == 0
    [made] = Path("audits").glob("new-*")
    other = Run.open(str(made))
    assert (other.rounds(), other.complete_features().index.num_examples) == ([], N)
    assert main(["compare", run.uri, "never.csv", "--metric", "recall@no"]) == 0
    states = {item.name.rpartition("-")[0]: item.state for item in list_runs("audits").runs}
    assert states == {"old": "to be estimated", "new": "not drawn", "never": "not drawn"}


@pytest.mark.parametrize(
    ("said", "id", "message"),
    [
        (np.full(N, "Yes"), "customer", "'Yes', which is no class of the run; did you mean 'yes'?"),
        (np.zeros(N, dtype=int), "customer", "predicts numbers of classes, and the run names"),
        (np.full(N, "yes"), "client", "has no column of ids"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_is_written(
    run: Run, said: np.ndarray, id: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", run.uri, write("new.csv", said, id)]) == 5
    assert message in capsys.readouterr().err
    assert not list(Path("audits").glob("new-*"))
