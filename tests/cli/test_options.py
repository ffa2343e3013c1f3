"""Values of options that several commands have."""

import pytest

from opacc_ray.cli.command import parse_assignments
from opacc_ray.errors import SpecError


def test_parameters_are_yaml() -> None:
    given = ["sections=20", "floor=0.2", "fractions=[0.8, 0.2]", "objective=kl", "stop_at_kl=null"]
    parameters = {"sections": 20, "floor": 0.2, "fractions": [0.8, 0.2], "objective": "kl", "stop_at_kl": None}
    assert parse_assignments(given) == parameters


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("floor=[", r"--set floor=\[: the value is not YAML"),
        ("sections", "--set sections: write NAME=VALUE"),
        ("floor=" + "[" * 600, r"--set floor=\[\[.*: the value is nested too deeply"),
    ],
)
def test_parameter_that_cannot_be_read_is_one_sentence(given: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        parse_assignments([given])
    assert "\n" not in str(caught.value)
