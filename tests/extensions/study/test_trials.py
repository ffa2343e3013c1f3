"""Trials: each can be repeated alone, and seeds and keys tell repetitions, cells and cases apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import N, arrays, block, source

import opacc_ray as opacc
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.extensions.study import trials
from opacc_ray.extensions.study.cases import read_case
from opacc_ray.extensions.study.trials import run_block


class TestRepetitions:
    def test_one_can_be_repeated_alone(self, cases: Path) -> None:
        work = block(cases / "full.npz", "css")
        found = run_block(work)
        full = arrays()
        pool = opacc.Pool(confidence=full["confidence"])
        for repetition, trial in enumerate(found):
            chosen = opacc.select(pool, "css", 30, seed=work.cell.seed_of(repetition))
            estimate = estimate_outcomes(chosen, full["correct"][chosen.index])
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

    def test_a_changed_case_is_noticed(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "case.npz", **arrays())
        known = read_case(source(tmp_path / "case.npz")).source
        np.savez(tmp_path / "case.npz", **(arrays() | {"correct": np.ones(N)}))
        with pytest.raises(DataError, match="has changed since the study began"):
            read_case(known)


class TestCode:
    def test_any_change_of_it_makes_other_keys(
        self, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cell, package = block(cases / "full.npz", "srs").cell, tmp_path / "package"
        digest_of = trials.code_digest.__wrapped__
        (package / "samplers").mkdir(parents=True)
        (package / "samplers" / "srs.py").write_text("x = 1\n")
        digests, keys = [digest_of(package)], {cell.key}
        (package / "samplers" / "srs.py").write_text("x = 1  # another line\n")
        digests.append(digest_of(package))
        (package / "samplers" / "srs.py").rename(package / "srs.py")
        digests.append(digest_of(package))
        for digest in digests:
            monkeypatch.setattr(trials, "code_digest", lambda digest=digest: digest)
            keys.add(cell.key)
        assert len(keys) == 4


def test_unforeseen_error_keeps_its_place(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(trials, "select", fail)
    with pytest.raises(
        OpaccError, match=r"case full, method srs, budget 30, repetition 0 .*ZeroDivisionError: by zero"
    ):
        run_block(block(cases / "full.npz", "srs"))
