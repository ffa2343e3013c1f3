"""What sections of a spec have in common."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def function_name(value: str) -> str:
    """``module:function``; raises ValueError for anything else."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("write module:function, such as mypkg.models:lenet5")
    return value


FunctionName = Annotated[str, AfterValidator(function_name)]
"""A function of the user's, as ``module:function``."""
