"""Documents: the same bytes for the same content, and one sentence for content that does not fit."""

import json
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError


class Wheel(Part):
    size: float = Field(gt=0)
    spokes: int | None = None


class Bicycle(Document):
    remedy: ClassVar[str] = "buy another"

    format: Literal["bicycle/3"] = "bicycle/3"
    owner: str
    wheels: list[Wheel]
    price: dict[str, float]


CONTENT: dict[str, Any] = {"format": "bicycle/3", "owner": "Ärn", "wheels": [{"size": 28.0}], "price": {"new": 900.0}}


def read(content: Any) -> Bicycle:
    return Bicycle.from_bytes(json.dumps(content).encode(), "a.json")


def test_written_and_read_again() -> None:
    document = read(CONTENT)
    assert Bicycle.from_bytes(document.to_bytes(), "a.json") == document
    assert document.to_bytes() == read(dict(reversed(CONTENT.items()))).to_bytes()
    assert list(document.to_dict()) == ["format", "owner", "wheels", "price"]
    assert document.to_dict()["wheels"] == [{"size": 28.0, "spokes": None}]
    assert "Ärn" in document.to_bytes().decode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "bicycle/9"}, 'a.json has format "bicycle/9"; this version reads "bicycle/3"'),
        ({"format": ["bicycle/3"]}, 'a.json has format ["bicycle/3"]; this version reads'),
        ({"ower": "me"}, "a.json: unknown key 'ower' (value \"me\"); did you mean 'owner'? If not, buy another"),
        ({"wheels": [{"size": 1.0, "spoke": 8}]}, "unknown key 'wheels.0.spoke' (value 8); did you mean 'spokes'?"),
        ({"wheels": [{}]}, "a.json: key 'wheels.0.size' is missing; buy another"),
        ({"wheels": [{"size": -1.0}]}, "a.json: wheels.0.size: Input should be greater than 0 (value -1.0)"),
        ({"wheels": [{"size": "28"}]}, 'wheels.0.size: Input should be a valid number (value "28")'),
        ({"wheels": [{"size": 1.0, "spokes": True}]}, "wheels.0.spokes: Input should be a valid integer (value true)"),
        ({"price": {"new": "x" * 90}}, 'price.new: Input should be a valid number (value "xxx'),
    ],
)
def test_content_that_does_not_fit_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(CONTENT | changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a.json is not JSON"),
        (b"{", "a.json is not JSON"),
        (b"\xff{}", "a.json is not JSON"),
        (b"[1]", "a.json holds a list, not a JSON object"),
        (b"null", "a.json holds a NoneType, not a JSON object"),
        (b"[" * 100_000, "a.json is nested too deeply"),
        (b'{"price": {"new": NaN}}', "a.json is not JSON (NaN is no JSON number)"),
        (b'{"price": ' + b"9" * 5000 + b"}", "a.json is not JSON"),
        (json.dumps(CONTENT).replace("28.0", "1e999").encode(), "wheels.0.size: Input should be a finite number"),
        (
            b'{"format": "bicycle/3", "owner": ' + b"[" * 500 + b"]" * 500 + b"}",
            "owner: Input should be a valid string",
        ),
    ],
)
def test_bytes_that_are_no_document_are_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        Bicycle.from_bytes(data, "a.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_would_not_fit_is_not_written() -> None:
    with pytest.raises(ValueError, match="finite"):
        Wheel(size=float("inf"))
    with pytest.raises(ValueError, match="frozen"):
        read(CONTENT).owner = "me"
