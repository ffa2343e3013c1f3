"""The command line as a user meets it: text or one JSON object on stdout; on errors one sentence and a code."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from extracting_here import extracting_here
from golden_run import copy_golden_run
from small_pictures import picture
from waiting import LONG

from opacc_ray.audit import verbs
from opacc_ray.audit.goals import read_goal
from opacc_ray.cli.main import application
from opacc_ray.errors import DataError
from opacc_ray.spec import parse_spec
from opacc_ray.spec.spec_sections import Least
from opacc_ray.spec.validation import read_share


@pytest.fixture
def in_this_process() -> Iterator[None]:
    with extracting_here():
        yield


@pytest.mark.usefixtures("in_this_process")
def test_audit_from_the_terminal(spec, told, tmp_path: Path) -> None:
    path, answers = tmp_path / "spec.yaml", tmp_path / "labels.csv"
    path.write_text(json.dumps(spec(sample={"method": "srs", "budget": 30})))
    code, out, _ = told("run", str(path), "--json")
    started = json.loads(out)
    assert (code, started["n"], started["pool_size"]) == (0, 30, 120)
    uri = started["run"]
    assert {name.rpartition("/")[2] for name in started["manifests"]} == {"manifest.csv", "manifest.jsonl"}

    code, out, err = told("estimate", uri)
    assert (code, out) == (6, "")
    assert "has a label yet: fill in a copy of " in err

    code, out, _ = told(
        *("run", "--like", uri, "--method", "css", "--budget", "40", "--set", "allocation=[0.5, 0.25, 0.25]", "--json")
    )
    assert code == 0
    uri = json.loads(out)["run"]

    chosen = verbs.Run.open(uri).read_chosen(1)
    rows = "".join(f"{name},{label}\n" for name, label in zip(chosen.ids, chosen.predictions, strict=True))
    answers.write_text("id,label\n" + rows)
    name = uri.rpartition("/")[2]
    assert told("labels", "import", uri, str(answers))[:2] == (
        0,
        "labels.csv  40 labels taken\n"
        "round     asked  labelled  missing  can't tell\n"
        "1            40        40        -           -\n"
        f"next: opacc estimate {name}\n",
    )
    result = json.loads(told("estimate", uri, "--json")[1])
    assert {"value", "low", "high", "level", "n", "design_based"} <= set(result)
    assert (result["value"], result["n"], result["design_based"]) == (1.0, 40, True)
    costs = tmp_path / "costs.yaml"
    costs.write_text("2: 10\n")
    code, out, _ = told("estimate", uri, "--assist", "--costs", str(costs))
    assert code == 0
    assert "\nassisted   100 %   95 % interval " in out
    assert "\nmean cost  0.000   95 % interval 0.000 to " in out
    assert out.endswith(f"\nnext: opacc report {name}\n")
    code, out, _ = told("compare", uri, uri, "--level", "0.995")
    assert code == 0
    shared = "40 labels, 0 predictions differ, better on 0, worse on 0"
    assert f"\n1 - 2     0.0 points   99.5 % interval 0.0 to 0.0   {shared}\n" in out
    code, out, _ = told("status", name)
    assert re.search(r"^1 +css +40 +40 +- +-$", out, re.MULTILINE)
    assert out.endswith(f"waits for  nothing\nnext: opacc report {name}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "/nowhere/spec.yaml"], 2, "there is no spec at /nowhere/spec.yaml"),
        (["status", "/nowhere/run"], 5, "there is no run at /nowhere/run"),
        (["labels", "import", "/nowhere/run", "/nowhere/labels.csv"], 5, "there is no run at /nowhere/run"),
        (["compare", "/nowhere/run", "/nowhere/other"], 5, "there is no run at /nowhere/run"),
        (["run", "--like", "/nowhere/run", "--set", "sections"], 5, "there is no run"),
        (["history", "s3://a/runs/week-0123abcd"], 5, "; run `opacc history week --output s3://a/runs`"),
        (["history", "spec.yaml"], 5, '"spec.yaml" is a path, and history takes the name of an audit'),
    ],
)
def test_error_is_one_sentence_and_a_code(arguments: list[str], code: int, message: str, told) -> None:
    found, out, err = told(*arguments)
    assert (found, out) == (code, "")
    assert err.startswith("opacc: ")
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rum"], "No such command 'rum'. Did you mean 'run'?"),
        (["status"], "Missing argument 'RUN'"),
        (
            ["estimate", "anywhere", "--lvel", "0.9"],
            "No such option '--lvel'. (Did you mean one of: '--help', '--level'?)",
        ),
        (["run", "spec.yaml", "--out", "x"], "'--output'"),
        (["run", "spec.yaml", "--level", "0.9"], "No such option '--level'. "),
        (["next", "anywhere", "--budget", "few"], "'few' is not a valid integer"),
    ],
)
def test_wrong_usage_is_one_sentence_and_2(arguments: list[str], message: str, told) -> None:
    code, out, err = told(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("opacc: ")
    assert message in err
    assert "; see opacc" in err
    assert len(err.splitlines()) == 1
    code, out, _ = told(*arguments, "--json")
    assert code == 2
    assert json.loads(out) == {"error": err.strip().removeprefix("opacc: "), "exit_code": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["next", "anywhere", f"--until={text}"], f"{text}: give a half-width between 0 and 1, such as 0.02")
        for text in ("±", "abc", "300%", "0", "nan", "-1")
    ]
    + [
        (["next", "anywhere", f"--until={text}"], f"such as 0.02; {meant}; see")
        for text, meant in (("3", "3 % is 0.03"), ("±5", "5 % is 0.05"))
    ]
    + [
        ([*command, f"--level={text}"], f"{text}: give a confidence level between 0 and 1, such as 0.95")
        for command in (["estimate", "anywhere"], ["study", "case.npz"])
        for text in ("0", "95", "-1", "x 0.9")
    ],
)
def test_number_outside_of_0_and_1_is_wrong_usage(arguments: list[str], message: str, told) -> None:
    code, out, err = told(*arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("3%", (None, 0.03)),
        ("±0.5 %", (None, 0.005)),
        ("f1@my class ± 3 %", ("f1@my class", 0.03)),
        ("1 - edits / words 0.1", ("1 - edits / words", 0.1)),
        ("90 %", (None, 0.9)),
    ],
)
def test_shares_are_read_as_numbers_and_percentages(text: str, asked: tuple[str | None, float]) -> None:
    assert read_share(text) == asked
    half_width, target = read_goal(text)
    assert (str(target.metric), half_width) == (asked[0] or "accuracy", asked[1])
    assert Least.parse(text).share == asked[1]


def test_spec_of_an_example_job_is_valid() -> None:
    paths = list((Path(__file__).parents[2] / "jobs").glob("*.yaml"))
    others = re.compile(r"study-.*|.*-fleet\.yaml")  # of another kind: study/test_spec.py, fleet/test_spec.py
    specs = [path for path in paths if not others.fullmatch(path.name)]
    assert specs
    for path in specs:
        assert parse_spec(yaml.safe_load(path.read_text()), path.name).sample.method == "neyman"


NOISY = """
import ctypes, os, subprocess, sys

def model(batch):
    os.write(1, b"native code\\n")
    ctypes.CDLL(None).puts(b"the library of C")
    sys.__stdout__.write("the first stdout\\n")
    subprocess.run(["echo", "another process"])
    print("a line")
    return {"output": batch.reshape(len(batch), -1)[:, :4]}
"""


@pytest.mark.processes
def test_what_a_model_prints_stays_out_of_the_result(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "pool").mkdir()
    for i in range(3):
        (tmp_path / "pool" / f"{i}.png").write_bytes(picture(i))
    spec = {
        "name": "noisy",
        "pool": {"uri": "pool", "format": "images"},
        "model": {"function": "noisy:model"},
        "sample": {"method": "srs", "budget": 2},
        "output": "out",
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "opacc_ray", "check", "spec.yaml", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG)
    assert json.loads(done.stdout)["format"] == "opacc-check/1"
    for words in ("native code", "the library of C", "the first stdout", "another process", "a line"):
        assert words in done.stderr


def test_fault_of_the_program_is_one_sentence_and_its_traceback_in_a_log(
    told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def faulty(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("opacc_ray.runs.run.Run.open", faulty)
    code, out, err = told("status", "anywhere", "--json")
    [log] = tmp_path.glob("opacc-*.log")
    message = f"unexpected ZeroDivisionError: division by zero; the traceback is in {log}"
    assert json.loads(out) == {"error": message, "exit_code": 1}
    assert err == f"opacc: {message}\n"
    assert log.read_text().startswith("Traceback (most recent call last)")
    assert log.stat().st_mode & 0o077 == 0
    assert told("status", "anywhere")[:2] == (code, "") == (1, "")


def test_details_of_an_error_are_kept_in_a_log(told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(*_: object) -> None:
        error = DataError("model.factory 'user:net' raised KeyError at user.py:3")
        error.details = "Traceback: line 3 of \udc80.py\nKeyError: '\x1b]0;owned\x07\u202e'\n"
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("opacc_ray.runs.run.Run.open", failing)
    code, _, err = told("status", "anywhere")
    [log] = tmp_path.glob("opacc-*.log")
    assert (code, err) == (
        5,
        f"opacc: model.factory 'user:net' raised KeyError at user.py:3; the traceback is in {log}\n",
    )
    assert log.read_text() == "Traceback: line 3 of \\udc80.py\nKeyError: '\\x1b]0;owned\\x07\\u202e'\n"


def test_error_is_no_longer_than_a_screen(told) -> None:
    code, _, err = told("run", "--like", "/nowhere", "--set", "x" * 100_000)
    assert code in (2, 5)
    assert len(told("status", "/nowhere/" + "y" * 100_000)[2]) < 2100 > len(err)


@pytest.mark.processes
def test_name_that_is_no_unicode_is_one_sentence(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/spec-\xff.yaml"
    done = subprocess.run([sys.executable, "-m", "opacc_ray", "run", path, "--json"], capture_output=True)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"there is no spec at" in done.stderr
    assert "there is no spec at" in json.loads(done.stdout)["error"]


def test_interrupted_command_says_that_work_is_kept(told, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("opacc_ray.runs.run.Run.open", interrupted)
    code, out, err = told("status", "anywhere", "--json")
    assert code == json.loads(out)["exit_code"] == 130
    assert err == "opacc: interrupted; finished work is kept; run the same command again\n"


# -- help and completion ---------------------------------------------------------------------------------


EVIDENCE = ("evidence seal", "evidence sign", "evidence pack")
SECTIONS = {
    "An audit, step by step": ["check", "run", "label", "next", "estimate", "report"],
    "Labels": [
        *("labels import", "labels list", "labels correct"),
        *("labels withdraw", "labels export"),
    ],
    "Results": ["status", "budget", "compare"],
    "More": ["methods", "spec"],
    "Extensions": [
        *("fleet run", "fleet alerts list", "fleet alerts ack", "metrics", "history", "watch"),
        *("characterize", "generate", "suite", "regress", *EVIDENCE, "verify", "study", "drift"),
        *("mlflow", "demo", "export", "runs list", "runs remove", "manifest", "submit"),
    ],
}  # fmt: skip


def test_help_lists_every_command_in_its_group(told) -> None:
    code, out, err = told("--help-all")
    assert (code, err) == (0, "")
    parts = re.split(rf"^({'|'.join(SECTIONS)}):$", out, flags=re.MULTILINE)[1:]
    sections = zip(parts[::2], parts[1::2], strict=True)
    listed = {title: re.findall(r"^  (\w+(?: \w+)*) {2,}\S", text, re.MULTILINE) for title, text in sections}
    assert listed == SECTIONS
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("Exit codes: 0 done") == 1


def test_first_help_lists_the_work_alone(told) -> None:
    code, out, _ = told("--help")
    listed = re.findall(r"^  (\w+) {2,}\S", out, re.MULTILINE)
    assert (code, listed[0], listed[-1]) == (0, "spec", "audit")
    assert len(out.splitlines()) <= 40
    assert max(map(len, out.splitlines())) <= 80
    assert not {*SECTIONS["Extensions"]} & {*listed}
    assert "opacc --help-all lists all commands, those of extensions" in out


def test_no_help_line_is_cut_off(told) -> None:
    _, out, _ = told("--help-all")
    for line in application.commands.values():
        for command in getattr(line, "commands", {"": line}).values():
            first = " ".join((command.help or "").partition("\n\n")[0].split())
            assert first.endswith((".", ")", "yaml."))
            assert first in " ".join(out.split())


@pytest.mark.parametrize("name", [name for names in SECTIONS.values() for name in names])
def test_every_command_explains_itself(name: str, told) -> None:
    code, out, err = told(*name.split(), "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: opacc {name} [OPTIONS]")
    assert "--json" in out
    assert "Exit codes" not in out


def test_opacc_alone_shows_the_help_and_is_wrong_usage(told) -> None:
    code, out, err = told()
    assert (code, out) == (2, "")
    assert err == told("--help")[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [("opacc est", "estimate"), ("opacc labels i", "import"), ("opacc run --method ney", "neyman")],
)
def test_shell_completes_commands_and_methods(words: str, expected: str, told, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"_OPACC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert told() == (0, f"plain,{expected}\n", "")


# -- a reader that goes away -----------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [["status", "RUN"], ["rum", "--json"]])
def test_closed_pipe_ends_quietly(arguments: list[str], tmp_path: Path) -> None:
    run = copy_golden_run(tmp_path)
    given = [item.replace("RUN", str(run)) for item in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "opacc_ray", *given], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 141
    assert not [line for line in done.stderr.splitlines() if not line.startswith("opacc: No such command")]
