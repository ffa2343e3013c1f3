"""The spec of a study: methods in one line, rounds, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

import opacc_ray as opacc
from opacc_ray.errors import SpecError
from opacc_ray.extensions.study.peers import PEERS
from opacc_ray.extensions.study.study_spec import MethodSpec, StudySpec, parse_method
from opacc_ray.spec import read_yaml, validated


class TestSpec:
    def test_method_in_one_line(self) -> None:
        assert parse_method("srs") == {"method": "srs"}
        assert parse_method("neyman:rounds=4, floor=0.2") == {"method": "neyman", "rounds": 4, "floor": 0.2}
        told = parse_method("css:fractions=[0.5,0.5],allocation=[0.2,0.8]")
        assert told == {"method": "css", "fractions": [0.5, 0.5], "allocation": [0.2, 0.8]}
        assert parse_method("deepreduce:alpha=1e-4,coverage=false")["alpha"] == 1e-4

    @pytest.mark.parametrize(
        ("rounds", "budget", "sizes"),
        [
            (1, 50, [50]),
            (4, 100, [10, 20, 30, 40]),
            (4, 50, [5, 10, 15, 20]),
            ([1, 1], 25, [12, 13]),
            (3, 6, [1, 2, 3]),
        ],
    )
    def test_rounds_share_the_budget(self, rounds: Any, budget: int, sizes: list[int]) -> None:
        assert MethodSpec(method="neyman", rounds=rounds).batches(budget) == sizes

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"methods": ["cse"]}, "methods.0: there is no method 'cse'; did you mean 'css'"),
            ({"methods": ["lue"]}, "methods.0: there is no method 'lue'; did you mean 'lure'"),
            (
                {"methods": ["best"]},
                "methods.0: there is no method 'best'; choose one of srs, .*, lure, stratified-proxy",
            ),
            ({"methods": ["ces:section=9"]}, "no parameter 'section'; did you mean 'sections'"),
            ({"methods": ["ces:9"]}, "'ces:9': write METHOD:NAME=VALUE"),
            ({"methods": ["neyman:rounds=0"]}, "rounds: give a number of rounds"),
            ({"methods": ["srs", "srs"]}, "two methods are called 'srs'; remove one, or give it another label"),
            ({"budgets": [0]}, "budgets: give numbers of labels"),
            ({"repetition": 5}, "unknown key 'repetition' .*did you mean 'repetitions'"),
            ({"cases": [{"path": "x", "colums": {}}]}, "unknown key 'cases.0.colums' .*did you mean 'columns'"),
            ({"cases": [{"path": "x", "name": "../x"}]}, "cases.0.name: must not contain '/'"),
            ({"level": 95}, "level: .*less than 1"),
        ],
    )
    def test_refusal(self, content: dict[str, Any], message: str) -> None:
        given = {"cases": ["x"], "methods": ["srs"], "budgets": [10]} | content
        with pytest.raises(SpecError, match=f"^test: .*{message}"):
            validated(StudySpec, given, "test")

    def test_committed_spec_is_valid(self) -> None:
        path = Path(__file__).parents[3] / "jobs" / "study-comparison.yaml"
        spec = validated(StudySpec, read_yaml(path) | {"cases": ["cases/"]}, path.name)
        assert {method.method for method in spec.methods} <= {*opacc.samplers.METHODS, *PEERS}
