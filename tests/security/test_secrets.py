"""Credentials that somebody wrote into an address are refused, and no message or log repeats them."""

import logging
import time
from pathlib import Path

import pytest

from opacc_ray.errors import OpaccError, StorageError, redacted, without_values
from opacc_ray.lake.store_uris import join, open_store, read_uri

SECRET = "hUsH/wJalrXUtnFEMI+K7"


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://AKIAKEY:{SECRET}@bucket/pool",
        f"s3://AKIAKEY:{SECRET}@bucket",
        f"s3://AKIAKEY:{SECRET}",
        f"https://user:{SECRET}@host/pool",
        f"s3://{SECRET.replace('/', '')}@bucket/pool",
    ],
)
@pytest.mark.parametrize("use", [open_store, read_uri, lambda uri: open_store(join(uri, "run"))])
def test_uri_with_credentials_is_refused_and_not_repeated(uri: str, use: object) -> None:
    with pytest.raises(StorageError, match="contains credentials") as caught:
        use(uri)  # type: ignore[operator]
    assert not [part for part in ("hUsH", "wJalr", "K7", "AKIAKEY") if part in str(caught.value)], str(caught.value)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
@pytest.mark.parametrize("value", [f"user:{SECRET}@host:9000", f"user:{SECRET}@host", f"ftp://user:{SECRET}@host"])
def test_endpoint_without_its_scheme_is_refused_and_not_repeated(
    s3: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.setenv(name, value)
    with caplog.at_level(logging.DEBUG), pytest.raises(OpaccError, match="write https://host:port") as caught:
        open_store("s3://bucket/pool").list()
    assert name in str(caught.value)
    assert not [part for part in ("hUsH", "wJalr", "K7") if part in str(caught.value) + caplog.text]


def test_endpoint_of_a_profile_is_not_repeated_either(
    s3: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(f"[default]\nendpoint_url = user:{SECRET}@host\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name)
    with pytest.raises(StorageError) as caught:
        open_store("s3://bucket/pool").list()
    assert not [part for part in ("hUsH", "wJalr", "K7") if part in str(caught.value)], str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"no answer from http://user:{SECRET}@host:9000 (timeout)", "no answer from http://***@host:9000 (timeout)"),
        (f"Invalid endpoint: user:{SECRET}@host", "Invalid endpoint: ***@host"),
        (f"no answer from redis://:{SECRET}@host:6379", "no answer from redis://***@host:6379"),
        ("s3://bucket/a@b.png at 12:30", "s3://bucket/a@b.png at 12:30"),
        ("write to me@example.org", "write to me@example.org"),
        ("http://127.0.0.1:9000/a@b", "http://***@b"),  # rather too much
    ],
)
def test_only_what_stands_before_the_host_is_hidden(text: str, expected: str) -> None:
    assert redacted(text) == expected


@pytest.mark.parametrize("text", ["a:", "a/b:", "://", "x://a:"])
def test_a_long_text_that_looks_like_addresses_takes_no_time(text: str) -> None:
    start = time.process_time()
    assert redacted(text * 2000) == text * 2000
    assert time.process_time() - start < 2


def test_values_of_variables_are_shown_as_their_names_and_short_ones_as_they_are() -> None:
    variables = {"KEY": SECRET, "LONGER": SECRET + "-and-more", "LEVEL": "1", "EMPTY": ""}
    text = f"1 of 2: {SECRET}-and-more, key={SECRET}"
    assert without_values(text, variables) == "1 of 2: $LONGER, key=$KEY"


@pytest.mark.parametrize("uri", ["s3://bucket/a@b:c/d", "/data/a@b:c", "file:///data/a@b:c", "s3://my.bucket-1/x"])
def test_other_addresses_are_as_they_were(uri: str) -> None:
    assert open_store(uri).uri
