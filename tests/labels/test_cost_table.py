"""A file of costs: classes by name or index, and one sentence for every error in it."""

from pathlib import Path

import pytest
from written_run import CLASSES

from opacc_ray.audit.accuracy import load_costs
from opacc_ray.errors import SpecError
from opacc_ray.spec import ModelSpec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgo: 3", r"costs\.yaml names 'dgo', which is none of the 3 classes \(did you mean 'dog'\?\)"),
        ("dog: {ct: 3}", r"names 'ct'.*did you mean 'cat'"),
        ("dog: -1", "the cost of errors on 'dog' is -1; give a finite number"),
        ("dog: {cat: .inf}", "the cost of predicting 'cat' for 'dog' is inf"),
        ("dog: much", "the cost of errors on 'dog' is 'much'"),
        ("dog: true", "is True; give a finite number"),
        ("dog: {dog: 3}", "predicting 'dog' for 'dog' is no error"),
        ("dog: 3\n'dog ': 3", "the class 'dog' appears twice"),
        ("1: 3", "costs.yaml names '1', which is a number, and the classes have names: use one of cat, dog, owl"),
        ("no: 3", "parses the name of a class as False; put quotes"),
        ("dog: {}", "the costs of 'dog' must have lines with a class and a cost"),
        ("[3]", "costs must have lines with a class and a cost, such as cat: 10"),
        ("", "costs must have lines with a class and a cost"),
        ("dog: [", "the file of costs .* is not YAML"),
    ],
)
def test_file_of_costs_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        load_costs(path, ModelSpec(factory="user:network", classes=CLASSES))
    assert "\n" not in str(caught.value)


def test_costs_of_classes_without_names(tmp_path: Path) -> None:
    path = tmp_path / "costs.yaml"
    model = ModelSpec(factory="user:network")
    path.write_text("2: 4")
    assert load_costs(path, model, 3) == {"2": 4.0}
    path.write_text("3: 4")
    with pytest.raises(SpecError, match="the class 3 is none of the model's, 0 to 2"):
        load_costs(path, model, 3)
    path.write_text("dog: 4")
    with pytest.raises(SpecError, match="names 'dog', but the run has no class names"):
        load_costs(path, model)
    with pytest.raises(SpecError, match="the task is regression; remove it"):
        load_costs(path, ModelSpec(factory="user:network", task="regression"))
