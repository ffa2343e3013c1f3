"""Published tables become cases: what the columns mean, and that another file is refused."""

import hashlib
from pathlib import Path

import numpy as np
import public_tables
import pytest

from opacc_ray.study.cases import Source, read_case

COMPAS = b"""id,sex,race,age_cat,decile_score,two_year_recid
1,Male,Other,Greater than 45,1,0
2,Female,Caucasian,25 - 45,5,1
3,Male,Asian,Less than 25,10,0
4,Male,Asian,Less than 25,4,1
"""


def test_compas_is_a_case_with_slices(tmp_path: Path) -> None:
    np.savez(tmp_path / "compas.npz", **public_tables.compas(COMPAS))
    case = read_case(Source("compas", str(tmp_path / "compas.npz"), slices=("race",)))
    assert case.outcome.tolist() == [1, 1, 0, 0]
    assert np.allclose(case.view.column("confidence"), [0.95, 0.45, 0.95, 0.65])
    assert case.view.slicing("race").names == ("Asian", "Caucasian", "Other")
    assert case.truth is not None
    assert case.truth.tolist() == [0, 1, 0, 1]


def test_ages_are_cut_where_their_names_say() -> None:
    found = public_tables.ages(np.array([17, 18, 29, 30, 64, 65])).tolist()
    assert found == ["under 18", "18 to 29", "18 to 29", "30 to 49", "50 to 64", "65 and over"]


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compas-scores-two-years.csv").write_bytes(COMPAS)
    with pytest.raises(SystemExit, match=r"compas-scores-two-years\.csv is not the file that was published"):
        public_tables.read("compas-scores-two-years.csv", tmp_path)
    digest = hashlib.sha256(COMPAS).hexdigest()
    monkeypatch.setitem(public_tables.FILES, "compas-scores-two-years.csv", ("", digest))
    monkeypatch.setattr(public_tables, "CASES", {"compas": public_tables.CASES["compas"]})
    public_tables.make_tables(tmp_path, tmp_path)
    assert len(read_case(Source("compas", str(tmp_path / "compas.npz"))).outcome) == 4
