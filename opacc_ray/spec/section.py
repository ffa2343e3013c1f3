"""What sections of a spec have in common."""

import re
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number: as 1 and 0 they would pass."""
        kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError("give a number; YAML reads yes, no, on and off as true and false")
        return value


def _kinds(annotation: Any) -> set[type]:
    """The types that an annotation is made of."""
    found: set[type] = {annotation} if isinstance(annotation, type) else set()
    return found.union(*map(_kinds, get_args(annotation)))


def function_name(value: str) -> str:
    """``module:function``; raises ValueError for anything else."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("write module:function, such as mypkg.models:lenet5")
    return value


FunctionName = Annotated[str, AfterValidator(function_name)]
"""A function of the user's, as ``module:function``."""
