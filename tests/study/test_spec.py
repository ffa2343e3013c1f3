"""The spec of a study: methods in one line, rounds, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import opacc_ray as opacc
from opacc_ray.errors import SpecError
from opacc_ray.spec import read_yaml, validated
from opacc_ray.study.peers import PEERS
from opacc_ray.study.study_spec import MethodSpec, StudySpec, parse_method


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

    def test_designs_that_differ_in_one_thing_are_compared(self) -> None:
        methods = ["srs", "srs:assist=true", "neyman:rounds=2", "neyman:rounds=3", "neyman:rounds=3,floor=0.2"]
        spec = validated(StudySpec, {"cases": ["x"], "methods": methods, "budgets": [10]}, "test")
        assert len({method.design for method in spec.methods}) == len(methods)

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
            ({"methods": ["srs", "srs"]}, "'srs' is listed twice; remove one of them"),
            (
                {"methods": ["srs", {"method": "srs", "label": "again"}]},
                "'srs' and 'again' are both 'srs', with the same draws; remove one of them",
            ),
            (
                {"methods": [{"method": "neyman", "rounds": 4, "repetitions": n, "label": f"n{n}"} for n in (4, 8)]},
                "'n4' and 'n8' are both 'neyman:rounds=4'",
            ),
            (
                {"methods": [{"method": name, "label": "a"} for name in ("srs", "css")]},
                "two methods are called 'a'; give one of them another label",
            ),
            ({"methods": ["srs", "neyman:assist=true"]}, "methods.1: assist=true of .*predicts every outcome itself"),
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

    def test_example_of_the_page_is_valid(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "study.md").read_text()
        content = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
        spec = validated(StudySpec, content, "study.md")
        assert [method.name for method in spec.methods] == [
            *("srs", "neyman:floor=0.2,rounds=4", "in three rounds", "lure"),
        ]
        assert spec.methods[2].batches(100) == [25, 25, 50]

    def test_committed_spec_is_valid(self) -> None:
        path = Path(__file__).parents[2] / "jobs" / "study-comparison.yaml"
        spec = validated(StudySpec, read_yaml(path) | {"cases": ["cases/"]}, path.name)
        assert {method.method for method in spec.methods} <= {*opacc.samplers.METHODS, *PEERS}
