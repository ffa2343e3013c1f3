"""From a label to an outcome: classes by name or index, values by their error; anything else is refused."""

import pytest

from opacc_ray.errors import LabelError
from opacc_ray.labelling.outcomes import outcome_of_classes, outcome_of_values

ANIMALS = ["cat", "dog", "None"]
DIGITS = ["1", "2", "0"]  # names that are whole numbers, not in the order of their indices


@pytest.mark.parametrize(
    ("text", "prediction", "classes", "expected"),
    [
        ("dog", 1, ANIMALS, 1.0),
        ("dog", 0, ANIMALS, 0.0),
        ("1", 1, ANIMALS, 1.0),
        ("1.0", 1, ANIMALS, 1.0),
        ("None", 2, ANIMALS, 1.0),
        ("1", 0, DIGITS, 1.0),
        ("2.0", 1, DIGITS, 1.0),
        ("0", 2, DIGITS, 1.0),
        ("7", 7, None, 1.0),
        ("7.0", 7, None, 1.0),
        ("7", 1, None, 0.0),
    ],
)
def test_outcome_of_classes(text: str, prediction: int, classes: list[str] | None, expected: float) -> None:
    assert outcome_of_classes(text, prediction, classes, id="a") == expected


@pytest.mark.parametrize(
    ("text", "classes", "words"),
    [
        (
            "Dgo",
            ANIMALS,
            "example 'a' has the label 'Dgo', which is none of the 3 classes (did you mean 'dog'?)",
        ),
        ("DOG", ANIMALS, "did you mean 'dog'"),
        ("horse", ANIMALS, "use one of cat, dog, None"),
        ("3", ANIMALS, "'3', which is none"),
        ("-1", ANIMALS, "'-1', which is none"),
        ("1.5", ANIMALS, "'1.5', which is none"),
        ("3", DIGITS, "'3', which is none"),
        ("x", [f"class {index}" for index in range(30)], "and 10 more"),
        ("cat", None, "has no class names"),
        ("1e3", None, "has no class names"),
        ("٣", None, "has no class names"),
    ],
)
def test_label_that_is_no_class(text: str, classes: list[str] | None, words: str) -> None:
    with pytest.raises(LabelError) as caught:
        outcome_of_classes(text, 0, classes, id="a")
    assert words in str(caught.value)


def test_a_number_is_no_index_where_classes_are_named_by_numbers() -> None:
    with pytest.raises(LabelError):
        outcome_of_classes("0", 0, ["1", "2", "3"], id="a")


@pytest.mark.parametrize(
    ("text", "prediction", "scale", "expected"),
    [
        ("1.5", 1.0, 1.0, 0.75),
        ("-2", -2.0, 1.0, 1.0),
        ("10", 0.0, 20.0, 0.75),
        ("1e1", 0.0, 10.0, 0.0),
        (".5", 0, 1, 0.75),
    ],
)
def test_outcome_of_values(text: str, prediction: float, scale: float, expected: float) -> None:
    assert outcome_of_values(text, prediction, scale, id="a") == expected


def test_an_error_above_the_scale_names_the_setting_and_a_value_that_helps() -> None:
    with pytest.raises(LabelError) as caught:
        outcome_of_values("5", 2.0, id="a")
    assert str(caught.value) == (
        "example 'a' with label 5 and prediction 2 scores -8, but scores must lie in [0, 1]:"
        " set model.error_scale (now 1) to 3.0 or more"
    )
    assert outcome_of_values("5", 2.0, 3.0, id="a") == 0.0
    for huge in ("1e300", "1e400"):
        with pytest.raises(LabelError, match="scores -inf"):
            outcome_of_values(huge, 2.0, id="a")


@pytest.mark.parametrize("text", ["", "cat", "3,5", "1_000", "nan", "inf", "0x10", "1.5 m", "٣"])
def test_label_that_is_no_number(text: str) -> None:
    with pytest.raises(LabelError, match="write a number such as"):
        outcome_of_values(text, 1.0, id="a")
