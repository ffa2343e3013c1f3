"""Cases as users bring them: which columns they are read from, and what of them is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import arrays, source

from opacc_ray.errors import DataError
from opacc_ray.extensions.study.cases import Case, files_of, find_cases, read_case
from opacc_ray.extensions.study.study_spec import CaseSpec


class TestCases:
    def test_one_case_in_three_formats(self, cases: Path, tmp_path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        full = arrays()
        columns = {name.upper(): list(values) if values.ndim == 2 else values for name, values in full.items()}
        pq.write_table(pa.table(columns), tmp_path / "full.parquet")
        from_npz, from_parquet = (read_case(source(path)) for path in (cases / "full.npz", tmp_path / "full.parquet"))
        from_csv = read_case(source(cases / "table.csv"))
        pools = [case.view.parts.pools[0] for case in (from_npz, from_parquet, from_csv)]  # type: ignore[attr-defined]
        assert np.array_equal(pools[0].hidden, pools[1].hidden)
        assert np.array_equal(pools[0].prediction, full["Pred"])
        assert pools[2].fields == {"confidence"}
        for case, pool in zip((from_npz, from_parquet, from_csv), pools, strict=True):
            assert np.array_equal(case.outcome, full["correct"])
            assert np.array_equal(pool.confidence, full["confidence"])

    @pytest.mark.parametrize(
        ("columns", "options", "outcome"),
        [
            ({"squared_error": [0.0, 1.0, 4.0]}, {}, [1, 0.75, 0]),  # by the largest error
            ({"squared_error": [0.0, 1.0, 4.0]}, {"error_scale": 4.0}, [1, 15 / 16, 0.75]),
            ({"squared_error": [0.0, 1.0, 4.0]}, {"error_scale": 1.0}, [1, 0, 0]),
            ({"pred": [1.0, 2.0, 5.0], "target": [1.0, 3.0, 3.0]}, {}, [1, 0.75, 0]),
            ({"pred": [1, 2, 5], "label": [1, 3, 5]}, {}, [1, 0, 1]),
            ({"pred": ["a", "b", "c"], "label": ["a", "c", "c"]}, {}, [1, 0, 1]),
            ({"pred": [1, 2, 5], "label": [1.0, 3.0, 5.0]}, {}, [1, 0, 1]),
            ({"pred": ["?", "none", "c"], "label": ["?", "none", "none"]}, {}, [1, 1, 0]),  # which the model predicts
            ({"outcome": [0.5, 0, 1], "squared_error": [9, 9, 9]}, {}, [0.5, 0, 1]),
            ({"ok": [1, 1, 0], "outcome": [7, 7, 7]}, {"columns": {"outcome": "ok"}}, [1, 1, 0]),
            ({"correct": [" TRUE", "false", "Pass "]}, {}, [1, 0, 1]),
        ],
    )
    def test_outcome(self, columns: dict[str, Any], options: dict[str, Any], outcome: list[float], tmp_path) -> None:
        np.savez(tmp_path / "case.npz", confidence=[0.1, 0.2, 0.3], **columns)
        assert self.read(tmp_path, **options).outcome.tolist() == outcome

    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            ({"x": [1, 2, 3]}, {}, r"case.npz\): it has no outcome; give outcome, correct .*columns are confidence, x"),
            ({"outcome": [0, 1, 2]}, {}, r"outcome 2.0 of row 3 is not in \[0, 1\]"),
            ({"outcome": ["pass", "maybe", "fail"]}, {}, "outcome 'maybe' of row 2 is not one of pass, true"),
            ({"outcome": [0, 1]}, {}, "2 outcomes and 3 examples"),
            ({"pred": [0, 1], "label": [0, 1, 1]}, {}, r"label has the shape \(3,\) and prediction \(2,\); give one"),
            ({"pred": [0.0, 1, 2], "target": ["1", "n/a", "2"]}, {}, "target: .*n/a.*; give numbers"),
            ({"pred": [0.0, 1, 2], "target": [1, 2, np.nan]}, {}, "target of row 3 is nan; give a number, or remove"),
            ({"squared_error": [0, np.inf, 2]}, {}, "squared_error of row 2 is inf; give a number"),
            ({"pred": [0, 1, 2], "label": [0, np.nan, 2]}, {}, "label of row 2 is NaN, so whether .* fill it in"),
            ({"pred": [0, np.nan, 2], "label": [0, 1, 2]}, {}, "prediction of row 2 is NaN, so whether"),
            ({"pred": ["a", "b", "c"], "label": ["a", "c", " "]}, {}, 'label of row 3 is " ", so whether'),
            ({"pred": ["a", "b", "c"], "label": ["a", "?", "c"]}, {}, r'label of row 2 is "\?", so whether'),
            ({"pred": [0, 1, 2], "label": ["a", "b", "c"]}, {}, 'prediction is 0 and label "a" in row 1, and a number'),
            ({"pred": ["a", "b", "c"], "label": [0, 1, 2]}, {}, 'prediction is "a" and label 0 .* both as names'),
            ({"okay": [0, 1, 1]}, {"columns": {"outcome": "ok"}}, "no column 'ok'.*did you mean 'okay'"),
            ({"ok": [0, 1, 1]}, {"columns": {"outcom": "ok"}}, "no field 'outcom'; did you mean 'outcome'"),
            ({"correct": np.array([1, None, 0])}, {}, "correct cannot be read: Object arrays"),
        ],
    )
    def test_refusal(self, columns: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path) -> None:
        np.savez(tmp_path / "case.npz", confidence=[0.1, 0.2, 0.3], **columns)
        with pytest.raises(DataError, match=message):
            self.read(tmp_path, **options)

    @pytest.mark.parametrize(("classes", "missing"), [([1, 2, None], "NaN"), (["a", "b", None], '(null|"")')])
    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_a_table_with_a_hole_in_its_labels_is_refused(
        self, classes: list[Any], missing: str, suffix: str, tmp_path: Path
    ) -> None:
        import pyarrow as pa
        from pyarrow import csv, parquet

        path = tmp_path / f"case.{suffix}"
        write = {"csv": csv.write_csv, "parquet": parquet.write_table}[suffix]
        write(pa.table({"pred": [classes[0]] * 3, "label": classes, "confidence": [0.1, 0.2, 0.3]}), path)
        with pytest.raises(DataError, match=rf"case.{suffix}\): label of row 3 is {missing}, so whether"):
            read_case(source(path))

    @pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
    def test_garbage_is_named(self, suffix: str, tmp_path: Path) -> None:
        (tmp_path / f"case.{suffix}").write_bytes(b"")
        with pytest.raises(DataError, match=rf"case case \(.*case.{suffix}\): it is not a "):
            read_case(source(tmp_path / f"case.{suffix}"))

    def test_names_must_differ(self, cases: Path, tmp_path: Path) -> None:
        np.savez(tmp_path / "table.npz", **arrays())
        with pytest.raises(DataError, match="two cases are called 'table'"):
            find_cases([CaseSpec(path=str(cases)), CaseSpec(path=str(tmp_path))])
        named = find_cases([CaseSpec(path=str(cases)), CaseSpec(path=str(tmp_path), name="other")])
        assert [case.name for case in named] == ["full", "table", "other"]

    @staticmethod
    def read(folder: Path, **options: Any) -> Case:
        return read_case(source(folder / "case.npz", **options))


def test_links_in_a_folder_of_cases_are_named_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("id,correct\n1,1\n2,0\n")
    (tmp_path / "a.csv").rename(tmp_path / "cases" / "a.csv")
    (tmp_path / "cases" / "b.csv").symlink_to(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"cases/b\.csv is no file but a symbolic link; name the case itself"):
        files_of(str(tmp_path / "cases"))
