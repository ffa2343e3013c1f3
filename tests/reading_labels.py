"""Files of labels, read from text."""

import pytest

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats.parsing import parse
from opacc_ray.labels.rows import Label


def read(text: str, name: str = "back.csv") -> list[Label]:
    return list(parse(text.encode(), name))


def pairs(text: str, name: str = "back.csv") -> list[tuple[str, str | None]]:
    return [(label.id, label.label) for label in read(text, name)]


def refusal(text: str | bytes, name: str = "back.csv") -> str:
    with pytest.raises(LabelError) as caught:
        list(parse(text if isinstance(text, bytes) else text.encode(), name))
    return str(caught.value)
