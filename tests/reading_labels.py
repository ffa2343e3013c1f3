"""Files of labels, read from text."""

import pytest

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats import Label, LabelFile, parse


def read(text: str, name: str = "back.csv") -> list[Label]:
    return list(parse(LabelFile(name, text.encode())))


def pairs(text: str, name: str = "back.csv") -> list[tuple[str, str | None]]:
    return [(label.id, label.label) for label in read(text, name)]


def refusal(text: str | bytes, name: str = "back.csv") -> str:
    with pytest.raises(LabelError) as caught:
        list(parse(LabelFile(name, text if isinstance(text, bytes) else text.encode())))
    return str(caught.value)
