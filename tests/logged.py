"""What the log of a run says of labels, and entries as a command that checks nothing would write them."""

from collections.abc import Sequence

from opacc_ray.labels.label_log import LabelAction, log_action
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Happening, name_of_labels


def label_files(run: Run, number: int) -> list[str]:
    """Return the keys of the files of labels that were imported for a round."""
    found = (key for commit, _ in run.logged(LabelAction, number) for key in commit.files)
    return list(dict.fromkeys(found))


def read_labels(run: Run, number: int) -> list[tuple[str, bytes]]:
    """Return the keys and contents of these files."""
    return [(key, run.store.read(key)) for key in label_files(run, number)]


def log_labels(run: Run, name: str, data: bytes, number: int = 1) -> None:
    """Log a file of labels without looking at it."""
    action = LabelAction(action="import", at="2026-01-01T00:00:00+00:00", file=name_of_labels(name, data))
    log_action(run, lambda _: action, (name, data), number)


def close(run: Run, number: int, ids: Sequence[str]) -> None:
    """Give up the labels of some examples of a round."""
    run.log.append(lambda commits: Happening([run.at(commits).closing(number, ids)], number))
