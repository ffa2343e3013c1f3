"""Outcomes of labels: classes by name or index, values by their error; anything else is refused."""

from unicodedata import normalize

import pytest

from opacc_ray.errors import LabelError
from opacc_ray.labels.joining import canonical_number, class_of, value_of
from opacc_ray.labels.label_log import Score

ANIMALS = ["cat", "dog", "None"]
DIGITS = ["1", "2", "0"]  # names that are whole numbers, not in the order of their indices


@pytest.mark.parametrize(
    ("text", "classes", "expected"),
    [
        ("dog", ANIMALS, 1),
        ("None", ANIMALS, 2),
        ("2", ["cat", "dog", "Can't tell"], 2),  # its name alone would be no label
        ("1", DIGITS, 0),
        ("2.0", DIGITS, 1),
        ("0", DIGITS, 2),
        ("7", None, 7),
        ("7.0", None, 7),
    ],
)
def test_class_that_a_label_names(text: str, classes: list[str] | None, expected: int) -> None:
    assert class_of(text, classes) == expected


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_name_is_the_same_however_its_accents_are_composed(forms: tuple[str, str]) -> None:
    name, text = (normalize(form, "Rückgabe") for form in forms)
    assert name != text
    assert class_of(text, ["Rechnung", name]) == 1
    assert class_of(text, [name, text]) == 1


@pytest.mark.parametrize(
    ("text", "classes", "words"),
    [
        (
            "Dgo",
            ANIMALS,
            "which is none of the 3 classes (did you mean 'dog'?)",
        ),
        ("DOG", ANIMALS, "did you mean 'dog'"),
        ("horse", ANIMALS, "use one of cat, dog, None"),
        (
            "0",
            ANIMALS,
            "which is a number, and the classes have names: use one of cat, dog, None; or declare that",
        ),
        ("2.0", ANIMALS, "which is a number, and the classes have names"),
        ("1", ["cat", "dog", "unsure"], "which is a number"),
        ("3", ANIMALS, "which is none"),
        ("-1", ANIMALS, "which is none"),
        ("1.5", ANIMALS, "which is none"),
        ("3", DIGITS, "which is none"),
        ("x", [f"class {index}" for index in range(30)], "and 10 more"),
        ("cat", None, "has no class names"),
        ("1e3", None, "has no class names"),
        ("٣", None, "has no class names"),
    ],
)
def test_label_that_is_no_class(text: str, classes: list[str] | None, words: str) -> None:
    with pytest.raises(LabelError) as caught:
        class_of(text, classes)
    assert words in str(caught.value)


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
def test_score_of_values(text: str, prediction: float, scale: float, expected: float) -> None:
    assert Score(scale).of(value_of(text), prediction) == expected
    assert not Score(scale).clips(value_of(text), prediction)


@pytest.mark.parametrize("text", ["1,250", "-12,000", "1,2,3", "1,2.5", ",", "1.250,5"])
def test_a_comma_that_may_be_a_thousands_separator_is_no_number(text: str) -> None:
    with pytest.raises(LabelError, match="is no number"):
        value_of(text)


@pytest.mark.parametrize("text", ["7", "-0.1", "1e300", "1e400", "-1e400", "1e-400"])
def test_the_form_of_a_number_is_a_label_of_that_number(text: str) -> None:
    value = value_of(text)
    assert value_of(canonical_number(value)) == value


@pytest.mark.parametrize("text", ["", "cat", "1_000", "nan", "inf", "0x10", "1.5 m", "٣"])
def test_label_that_is_no_number(text: str) -> None:
    with pytest.raises(LabelError, match="is no number"):
        value_of(text)


@pytest.mark.parametrize("text", ["7", "7.0", "7.000", "07"])
def test_index_of_a_class_that_the_model_does_not_have(text: str) -> None:
    assert class_of(text, None, 8) == 7
    with pytest.raises(LabelError, match=r"none of the 7 classes: use a whole number from 0 to 6"):
        class_of(text, None, 7)
