"""The server of the page, over real sockets: without the token there is nothing, with it only what the page needs."""

import http.client
import json
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from labelled_pages import CLASSES, run_to_label, served_here
from logged import read_labels
from waiting import LONG

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.labels.desk import LabelQueue
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.web_app import NO_PAGE, serve
from opacc_ray.runs.run import Run

pytestmark = pytest.mark.processes

NUM = 8


class Site(NamedTuple):
    run: Run
    address: str

    @property
    def token(self) -> str:
        return urlsplit(self.address).path.strip("/")

    def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, bytes, Any]:
        """Status, content and headers of an answer; the path goes out as it is written."""
        place = urlsplit(self.address)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=LONG)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, {"content-type": kind} if data is not None else {})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content, answer.headers

    def get(self, name: str) -> tuple[int, bytes, Any]:
        return self.send("GET", f"/{self.token}/{name}")

    def post(self, name: str, **body: Any) -> tuple[int, Any]:
        status, content, _ = self.send("POST", f"/{self.token}/{name}", body)
        return status, json.loads(content)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    run = run_to_label(str(tmp_path_factory.mktemp("page")), NUM, CLASSES)
    with served_here(run) as address:
        yield Site(run, address)


@pytest.mark.parametrize("path", ["", "page.js", "page.css", "setup", "image/0"])
def test_files_of_the_page_come_with_headers_that_allow_nothing_else(site: Site, path: str) -> None:
    status, content, headers = site.get(path)
    assert (status, bool(content)) == (200, True)
    assert headers["content-security-policy"].startswith("default-src 'none'; img-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["server"] is None


def test_the_page_gets_neither_ids_nor_predictions(site: Site) -> None:
    _, setup, _ = site.get("setup")
    told = json.loads(setup)
    assert (told["run"], told["task"], told["classes"]) == ("audit", "classification", CLASSES)
    assert set(told) == {
        *("run", "task", "classes", "annotator", "several", "numbers", "pictures", "long"),
        *("question", "guide", "about", "unit", "range", "counts", "inbox"),
    }
    status, state = site.post("next", annotator="nobody yet")
    assert status == 200
    assert set(state) == {
        *("number", "row", "rendered", "mine", "upcoming", "progress", "more", "different", "undone", "last")
    }
    assert ".png" not in json.dumps(state)


def test_a_closed_tab_gives_its_example_back_unless_another_one_asked_since(site: Site) -> None:
    def number(name: str, tab: float) -> int:
        return int(site.post("next", annotator=name, tab=tab)[1]["number"])

    first = number("ann", 0.1)
    for name, tab, free in (("ann", 0.3, False), ("bob", 0.1, False), ("ann", 0.1, True)):
        sent = {"annotator": name, "tab": tab}
        assert site.send("POST", f"/{site.token}/release", sent)[:2] == (204, b"")
        assert (number(f"{name} {tab}", 0.4) == first) == free
    assert site.post("release", annotator="", tab=0.1)[0] == 400


def test_a_browser_that_closes_within_a_request_is_no_error_of_the_server(tmp_path: Path) -> None:
    with served_here(run_to_label(str(tmp_path), 1, CLASSES)) as address:  # it expects no error in the server's log
        place = urlsplit(address)
        for name in ("release", "answer"):
            with socket.create_connection((place.hostname, place.port), timeout=LONG) as browser:
                browser.sendall(f"POST {place.path}{name} HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{{".encode())
        with urlopen(f"{address}setup") as answer:  # after the requests before it
            assert answer.status == 200


@pytest.mark.parametrize("token", ["", "x", "{token}x", "TOKEN", "{token}%00", "static", "..", "é"])
def test_without_the_token_there_is_nothing(site: Site, token: str) -> None:
    wrong = token.format(token=site.token).encode("latin-1", "replace").decode("latin-1")
    for name in ("", "setup", "image/0"):
        status, content, _ = site.send("GET", f"/{wrong}/{name}".replace("é", "%C3%A9"))
        assert (status, content) == (404, NO_PAGE.encode())
    status, content, _ = site.send("POST", f"/{wrong}/answer".replace("é", "%C3%A9"), {"annotator": "eve"})
    assert status == 404


@pytest.mark.parametrize(
    "path",
    [
        "../", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "image/../../spec.json",
        "image/..%2f..%2fspec.json", "image/-1", "image/0x1", "image/1e0", "image/99999999999999999999999",
        "image/000.png", "image/0/../1", "image/8", "image/0/whole/x", "desk.py", "page.html", "web_app.py",
        "page.js/",
        "image//0", "image/s3://other/run", "spec.json", "rounds/1/selection.json", "../other-run/setup",
        "image/" + "9" * 5000,
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_page(site: Site, path: str) -> None:
    status, content, _ = site.send("GET", f"/{site.token}/{path}")
    assert status == 404
    assert len(content) <= len(NO_PAGE)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "must be a JSON object"),
        (b"[1]", "must be a JSON object"),
        (b"{" * 5000, "must be a JSON object"),
        (b"x" * 20_000, "at most 16384 bytes"),
        ({"number": 0, "label": "cat"}, "give a name"),
        ({"annotator": "a\nb", "number": 0, "label": "cat"}, "give a name"),
        ({"annotator": "eve", "label": "cat"}, "no such example"),
        ({"annotator": "eve", "number": -1, "label": "cat"}, "no such example"),
        ({"annotator": "eve", "number": NUM, "label": "cat"}, "no such example"),
        ({"annotator": "eve", "number": True, "label": "cat"}, "no such example"),
        ({"annotator": "eve", "number": "../0", "label": "cat"}, "no such example"),
        ({"annotator": "eve", "number": 0, "label": ["cat"]}, "give a label"),
        ({"annotator": "eve", "number": 0, "label": "  "}, "give a label"),
        ({"annotator": "eve", "number": 0, "label": "cow"}, "none of the 3 classes"),
    ],
)
def test_what_is_no_answer_is_refused_and_nothing_is_kept(site: Site, body: Any, words: str) -> None:
    before = len(site.run.commits)
    status, content, _ = site.send("POST", f"/{site.token}/answer", body)
    assert status == 400
    assert words in json.loads(content)["error"]
    assert len(site.run.commits) == before


def test_a_form_of_another_site_is_refused(site: Site) -> None:
    body = json.dumps({"annotator": "eve", "number": 0, "label": "cat"}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert site.send("POST", f"/{site.token}/answer", body, kind)[0] == 400


def address_of(process: subprocess.Popen[str]) -> str:
    """The address that a command announces, whatever it logs before."""
    assert process.stderr is not None
    return next(found[0] for line in process.stderr if (found := re.search(r"http://\S+", line)))


def test_errors_are_logged_and_the_page_gets_no_id_or_path(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 2, CLASSES)
    damaged, lost = ids = run.read_selection(1).ids
    (tmp_path / "pool" / damaged).write_bytes(b"no picture")
    (tmp_path / "pool" / lost).unlink()
    command = [sys.executable, "-m", "opacc_ray", "label", run.uri, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    site = Site(run, address_of(process))
    told = [site.get(f"image/{name}")[1].decode() for name in ("0", "0", "0/whole", "1", "1", "1/whole")]
    refused = site.post("answer", annotator="eve", number=0, label="cow")[1]["error"]
    shutil.move(f"{run.uri}/rounds", f"{run.uri}/lost")
    (Path(run.uri) / "labels").write_bytes(b"")
    answers = [site.post("answer", annotator="eve", number=number, label="cat")[1] for number in (0, 1)]
    told += [refused, answers[1]["error"]]  # after the last answer the run is read again
    process.send_signal(signal.SIGINT)
    logged = process.communicate(timeout=LONG)[1]
    assert refused.startswith("'cow', which is none of the 3 classes")
    assert not [text for text in told for name in (*ids, str(tmp_path)) if name in text]
    assert [logged.count(id) for id in ids] == [1, 1]


def test_the_annotator_of_the_command_is_the_only_one(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 2, CLASSES)
    with served_here(run, "a-token-of-my-own", "ann") as address:
        assert address.endswith("/a-token-of-my-own/")
        site = Site(run, address)
        assert json.loads(site.get("setup")[1])["annotator"] == "ann"
        site.post("answer", annotator="eve", number=0, label="cat")
        site.post("answer", number=1, label=None)
    assert {json.loads(data)["annotator"] for _, data in read_labels(run, 1)} == {"ann"}
    [only] = read_rounds(run)
    assert (only.truth, only.unsure) == (("cat",), (run.read_selection(1).ids[1],))


def test_what_cannot_be_served_is_refused_in_one_sentence(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["label", site.run.uri, "--port", port]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"127.0.0.1:{port} cannot be used (Address already in use): give another" in said
    monkeypatch.setenv("OPACC_LABEL_TOKEN", "short")
    assert main(["label", site.run.uri, "--port", "0"]) == 2
    said = "opacc: OPACC_LABEL_TOKEN must be at least 16 random letters, digits, '-' and '_'\n"
    assert capsys.readouterr().err == said
    assert main(["label", str(tmp_path)]) == 5


@pytest.mark.parametrize("serving", [False, True])
def test_sigterm_ends_it_with_its_own_code(tmp_path: Path, serving: bool) -> None:
    run = run_to_label(str(tmp_path), 2, CLASSES)
    command = [sys.executable, "-m", "opacc_ray", "label", run.uri, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = address_of(process)
    if serving:
        urlopen(address, timeout=LONG).close()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG)
    assert process.returncode == 143


def test_a_page_until_all_is_labelled_ends_by_itself(tmp_path: Path) -> None:
    run, addresses = run_to_label(str(tmp_path), 3, CLASSES), queue.Queue[str]()
    with ThreadPoolExecutor(1) as thread:
        session = thread.submit(serve, run, "127.0.0.1", 0, addresses.put, go_on=lambda: False)
        site = Site(run, addresses.get(timeout=LONG))
        for number in range(3):
            assert not session.done()
            assert site.post("answer", annotator="ann", number=number, label=CLASSES[0])[0] == 200
        done = session.result(timeout=LONG)
    assert (done.saved, done.done, done.total) == (3, 3, 3)
    assert read_rounds(run)[0].missing == ()


def test_an_error_between_rounds_ends_the_page_with_it(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 1, CLASSES)
    LabelQueue(run).save("ann", 0, CLASSES[0])

    def fails() -> bool:
        raise DataError("the pool is gone")

    with ThreadPoolExecutor(1) as thread, pytest.raises(DataError, match="the pool is gone"):
        thread.submit(serve, run, "127.0.0.1", 0, lambda address: None, go_on=fails).result(timeout=LONG)
