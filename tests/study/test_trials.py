"""Trials: each can be repeated alone, and seeds and keys tell repetitions, cells and cases apart."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import N, arrays, block, source

import opacc_ray as opacc
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.study import trials
from opacc_ray.study.cases import read_case
from opacc_ray.study.trials import decode, encode, run_block


class TestRepetitions:
    def test_one_can_be_repeated_alone(self, cases: Path) -> None:
        work = block(cases / "full.npz", "css")
        found = run_block(work)
        full = arrays()
        pool = opacc.Pool(confidence=full["confidence"])
        for repetition, trial in enumerate(found):
            chosen = opacc.select(pool, "css", 30, seed=work.cell.seed_of(repetition))
            estimate = opacc.estimate(chosen, full["correct"][chosen.index])
            assert (trial.value, trial.low, trial.high) == (estimate.value, estimate.low, estimate.high)
            assert trial.failures == (~full["correct"])[chosen.index].sum()
        assert len({trial.value for trial in found}) > 1

    def test_seeds_differ_between_cells_and_repetitions(self, cases: Path) -> None:
        cells = [block(cases / "full.npz", method, budget).cell for method in ("srs", "css") for budget in (20, 30)]
        cells.append(cells[0]._replace(seed=6))
        seeds = {cell.seed_of(repetition) for cell in cells for repetition in range(50)}
        assert len(seeds) == 250
        assert all(0 <= seed < 2**63 for seed in seeds)
        assert len({cell.key for cell in cells}) == 5

    def test_content_and_reading_of_a_case_are_part_of_the_key(self, cases: Path) -> None:
        cell = block(cases / "full.npz", "srs").cell
        changes = ({"columns": (("outcome", "x"),)}, {"error_scale": 2.0}, {"digest": "other"})
        others = [replace(cell.source, **change) for change in changes]
        assert len({cell.key, *(cell._replace(source=other).key for other in others)}) == 4

    def test_rounds_learn_from_outcomes(self, cases: Path) -> None:
        trial = run_block(block(cases / "full.npz", "neyman:rounds=3", 60, 1))[0]
        once = run_block(block(cases / "full.npz", "neyman", 60, 1))[0]
        assert (trial.draws, trial.labels) == (60, 60)
        assert trial.design_based
        assert trial.value != once.value

    def test_a_changed_case_is_noticed(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "case.npz", **arrays())
        known = read_case(source(tmp_path / "case.npz")).source
        np.savez(tmp_path / "case.npz", **(arrays() | {"correct": np.ones(N)}))
        with pytest.raises(DataError, match="has changed since the study began"):
            read_case(known)

    def test_encoding_loses_nothing(self, cases: Path) -> None:
        found = run_block(block(cases / "full.npz", "srs"))
        assert decode(encode(found)) == found


class TestCode:
    def test_any_change_of_it_makes_other_keys(
        self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cell, package = block(cases / "full.npz", "srs").cell, Path(opacc.__file__).parent
        digest_of, copied = trials.code_digest.__wrapped__, tmp_path / "opacc_ray"
        shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__"))
        assert digest_of(copied) == digest_of(package)
        keys = {cell.key}
        for name in ("samplers/neyman/newton.py", "selection.py"):
            with (copied / name).open("a") as changed:
                changed.write("# another line\n")
            now = digest_of(copied)
            monkeypatch.setattr(trials, "code_digest", lambda now=now: now)
            keys.add(cell.key)
        assert len(keys) == 3

    @pytest.mark.processes
    def test_it_is_all_that_a_trial_loads(self) -> None:
        loaded = "import sys, opacc_ray.study.trials; print(*(name for name in sys.modules if 'opacc_ray.' in name))"
        done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
        rooms = {name.split(".")[1] for name in done.stdout.split()}
        assert rooms - {"errors", "lake"} == {Path(name).stem for name in trials.DECISIVE}


def test_unforeseen_error_keeps_its_place(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(trials, "select", fail)
    with pytest.raises(
        OpaccError, match=r"case full, method srs, budget 30, repetition 0 .*ZeroDivisionError: by zero"
    ):
        run_block(block(cases / "full.npz", "srs"))
