"""What is refused before anything is sent to a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import SpecError, StorageError
from opacc_ray.extensions.jobs import submission
from opacc_ray.extensions.jobs.submission import Job, RunExit, as_yaml, submit
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import located
from opacc_ray.spec import Spec, load_spec, parse_spec, parse_yaml


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """A spec that can be run, and an environment that names no cluster."""
    open_store(str(tmp_path / "pool")).write_many((f"{i}.png", picture(i)) for i in range(5))
    content = {
        "name": "small",
        "pool": {"uri": str(tmp_path / "pool"), "format": "images"},
        "model": {"factory": "small_model:network"},
        "sample": {"method": "srs", "budget": 3},
        "output": str(tmp_path / "out"),
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(content))
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "NOWHERE"):
        monkeypatch.delenv(name, raising=False)
    return load_spec(tmp_path / "spec.yaml")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"environment": ["NOWHERE"]}, "--env NOWHERE: the environment has no NOWHERE"),
        ({"environment": ["KEY=hush"]}, '--env "KEY": give only the name of a variable'),
        ({"modules": ["nobody"]}, "there is no module 'nobody'"),
        ({}, "no cluster is named; give --address http://HEAD:8265"),
    ],
)
def test_order_that_cannot_be_sent_is_refused(spec: Spec, order: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        submit(spec, print, **order)
    assert message in str(error.value)
    assert "hush" not in str(error.value)


def test_run_of_a_cluster_with_other_libraries_is_found_again(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is another than the one that is planned here."""
    with extracting_here(), monkeypatch.context() as there:
        there.setattr("opacc_ray.extract.model_code._release", lambda *_: "99.1")
        run = verbs.first_round(spec)
    note = Path(spec.output, "note.json")
    ended = RunExit(ended="waits for labels", exit_code=0, run=run.uri, waits_for="3 labels", error=None)
    note.write_bytes(ended.to_bytes())
    job = Job("small-1", "SUCCEEDED", 0, "", {"exit_file": str(note)})

    class Server:
        def __init__(self, *_: object) -> None: ...

        def newest(self, name: str) -> Job:
            assert name != run.name
            return job

    monkeypatch.setattr("opacc_ray.extensions.jobs.submission.JobServer", Server)
    answer, _ = submit(spec, print)
    assert (answer.found, answer.run, answer.ended) == (True, run.uri, "waits for labels")


def test_a_job_that_left_no_exit_status_is_explained_by_the_end_of_its_log() -> None:
    """Ray's own line comes late, and is not the reason."""
    began = "2026-11-23 18:20:00,1\tINFO job_manager.py:568 -- Running entrypoint for job a-1: python -m opacc_ray"
    job = Job("a-1", "FAILED", 3, f"last available logs:\nline 500\nhere is why\n{began}\n", {})
    answer, failure = submission._state(job, "/out/a", False, [], {})
    said = "ended with code 3 before it wrote its exit status (FAILED); its log ends with: last available logs: / "
    assert (answer.ended, answer.exit_code, failure.exit_code) == ("failed", 4, 4)
    assert f"{said}line 500 / here is why; `ray job logs a-1`" in str(failure)


def test_a_command_leaves_its_exit_status_also_for_a_wrong_spec(spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text((tmp_path / "spec.yaml").read_text().replace("srs", "sars"))
    for name, code in (("spec", 7), ("wrong", 2)):
        with extracting_here():
            assert main(["run", f"{tmp_path}/{name}.yaml", "--exit-file", f"{tmp_path}/{name}.json"]) in (0, code)
    right, wrong = (
        RunExit.from_dict(json.loads((tmp_path / f"{name}.json").read_text()), name) for name in ("spec", "wrong")
    )
    assert (right.ended, right.exit_code, right.waits_for) == ("waits for labels", 0, "3 labels")
    assert (wrong.ended, wrong.exit_code, wrong.run) == ("wrong spec", 2, None)
    assert "no method 'sars'" in wrong.error


def test_spec_that_does_not_fit_its_data_is_refused_and_nothing_written(spec: Spec) -> None:
    wanting = spec.model_copy(update={"sample": spec.sample.model_copy(update={"budget": 6})})
    with pytest.raises(SpecError, match="has 5 examples; set at most 5"):
        submit(wanting, print, address="http://127.0.0.1:1")
    empty = spec.model_copy(update={"pool": spec.pool.model_copy(update={"uri": "/nowhere"})})
    with pytest.raises(StorageError, match="cannot list /nowhere"):
        submit(empty, print, address="http://127.0.0.1:1")
    assert not Path(spec.output).exists()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sample": {"method": "ces", "budget": 5, "sections": 10, "stop_at_kl": 0.01}, "seed": 7},
        {
            "reference": {"uri": "train"},
            "extract": {"features": ["hidden", "output", "dsa"], "actors": 3},
        },
        {"model": {"function": "mine:f", "task": "regression"}, "score": {"within": 0.5}, "sample": {"method": "srs"}},
        {
            "pool": {"uri": "log", "format": "features", "columns": {"output": "ö", "id": "id"}},
            "model": {"classes": ["é"]},
        },
    ],
)
def test_spec_that_is_sent_is_the_spec(changes: dict[str, object]) -> None:
    content = {
        "name": "any",
        "pool": {"uri": "pool", "format": "images"},
        "model": {"factory": "mine:f", "weights": "weights.pt", "arguments": {"depth": 3}},
        "sample": {"method": "srs", "budget": 3},
        "output": "out",
    }
    spec = located(parse_spec(content | changes, "spec"))
    again = parse_spec(parse_yaml(as_yaml(spec), "sent"), "sent")
    assert again == spec
    assert again.identity() == spec.identity()
