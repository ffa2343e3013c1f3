"""Short names of runs: where they are looked up, and when output uses them."""

from pathlib import Path

import pytest

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.runs.run_names import MOST_OUTPUTS, known_outputs, remember, short_name, uri_of

NAME = "digits-cfbb3651"


def make_run(output: Path, name: str = NAME) -> str:
    (output / name).mkdir(parents=True)
    (output / name / "spec.json").write_text("{}")
    return str(output / name)


@pytest.mark.parametrize("given", ["s3://audits/digits-cfbb3651", "./digits-cfbb3651", "weekly", "digits-CFBB3651"])
def test_a_uri_or_path_is_kept(given: str) -> None:
    assert uri_of(given) == given


def test_a_folder_of_that_name_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert uri_of(NAME) == NAME
    assert short_name(str(tmp_path / NAME)) == str(tmp_path / NAME)


def test_a_name_is_found_under_a_remembered_output(tmp_path: Path) -> None:
    remember(make_run(tmp_path / "a", "other-00000000"))
    uri = make_run(tmp_path / "a")
    assert short_name(uri) == uri
    assert uri_of(NAME) == uri
    assert known_outputs() == {str(tmp_path / "a"): [NAME, "other-00000000"]}
    assert short_name(uri) == NAME


def test_a_name_is_found_in_the_usual_output_of_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = make_run(tmp_path / "audits")
    remember(make_run(tmp_path / "a", "other-00000000"))
    monkeypatch.chdir(tmp_path)
    assert uri_of(NAME) == uri
    assert known_outputs()[str(tmp_path / "audits")] == [NAME]


def test_the_variable_comes_before_remembered_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(make_run(tmp_path / "a"))
    uri = make_run(tmp_path / "b")
    monkeypatch.setenv("OPACC_OUTPUT", str(tmp_path / "b"))
    assert uri_of(NAME) == uri
    assert short_name(uri) == NAME
    assert short_name(str(tmp_path / "a" / NAME)) == str(tmp_path / "a" / NAME)
    monkeypatch.setenv("OPACC_OUTPUT", str(tmp_path / "c"))
    with pytest.raises(DataError, match=r"no run digits-cfbb3651 in \$OPACC_OUTPUT \(.*/c\); give its URI"):
        uri_of(NAME)


def test_an_ambiguous_name_is_one_sentence_with_both_places(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    remember(first)
    remember(second)
    with pytest.raises(DataError, match=rf"2 outputs hold a run {NAME}: {second}, {first}; give one of these URIs"):
        uri_of(NAME)
    assert (short_name(first), short_name(second)) == (first, second)


def test_an_unknown_name_is_answered_with_the_runs_of_this_folder_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    remember(make_run(tmp_path / "a", "other-00000000"))
    assert main(["status", NAME]) == 5
    assert f"there is no run {NAME} in ./audits; give its URI, or set OPACC_OUTPUT" in capsys.readouterr().err
    remember(make_run(tmp_path / "audits", "own-00000000"))
    assert main(["compare", str(tmp_path), NAME]) == 5
    assert f"there is no run {NAME} in ./audits, which has own-00000000; give its URI" in capsys.readouterr().err


def test_the_name_of_an_audit_is_answered_with_its_runs(tmp_path: Path) -> None:
    remember(make_run(tmp_path / "a"))
    remember(make_run(tmp_path / "a", "digits-00000000"))
    remember(make_run(tmp_path / "a", "digits-b-00000000"))
    runs = "digits is the name of an audit; give one of its runs: digits-00000000, digits-cfbb3651$"
    with pytest.raises(DataError, match=runs):
        uri_of("digits")


def test_a_missing_run_is_answered_with_the_newest_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        remember(make_run(tmp_path / "a", f"digits-0000000{number}"))
    assert main(["status"]) == 2
    newest = "digits-00000004, digits-00000003, digits-00000002"
    assert f"Missing argument 'RUN', such as {newest}; see opacc status --help\n" in capsys.readouterr().err


def test_a_state_that_cannot_be_read_or_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "opacc").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    remember("s3://audits/digits-cfbb3651")
    assert known_outputs() == {}


def test_only_the_newest_outputs_are_kept(tmp_path: Path) -> None:
    for number in range(MOST_OUTPUTS + 2):
        remember(f"/out{number}/{NAME}")
    assert next(iter(known_outputs())) == f"/out{MOST_OUTPUTS + 1}"
    assert len(known_outputs()) == MOST_OUTPUTS
