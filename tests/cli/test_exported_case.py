"""What the terminal says of a case that was written."""

import pytest

from opacc_ray.audit.exported_case import ExportedCase
from opacc_ray.cli.run_answers import exported


@pytest.mark.parametrize(("examples", "whole"), [(40, True), (39, False)])
def test_labels_of_the_whole_pool_are_no_part_of_it(examples: int, whole: bool) -> None:
    known = {"examples": examples, "pool_size": 40, "unlabelled": 1, "unsure": 0, "value": 0.5, "measure": "accuracy"}
    known |= {"columns": ["hidden"], "file": "case.npz"}
    document = ExportedCase.model_construct(**dict.fromkeys(ExportedCase.model_fields) | known)
    said = " ".join(str(line) for line in exported(document))
    assert ("the whole pool" in said) == whole
    assert ("97.5 % of the pool" in said) != whole
