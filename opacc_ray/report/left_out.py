"""What a report leaves out, in sentences."""

from opacc_ray.report.documents import RunReport
from opacc_ray.report.sentences import thousands
from opacc_ray.runs.estimate_documents import ChangedObjects


def left_out(report: RunReport) -> list[str]:
    """Return one sentence for each kind of thing that the number is not of."""
    found = []
    if report.num_excluded:
        found.append(f"{_examples(report.num_excluded)} could not be read, and the result is stated for the rest.")
    for kind in report.header.pool.ignored:
        found.append(
            f"{thousands(kind.num_files)} files beside the pool were not read: {kind.kind}, such as {kind.first[0]}."
        )
    for number in report.rounds:
        place = f"in round {number.round}"
        if number.missing:
            found.append(f"{_examples(number.missing)} {place} wait for a label.")
        if number.unsure:
            found.append(f"On {_examples(number.unsure)} {place} nobody could tell.")
        if number.given_up:
            found.append(f"{_examples(number.given_up)} {place} were given up without a label.")
    if report.estimate and report.estimate.objects:
        text = changed_objects(report.estimate.objects)
        found += [text] if text else []
    return found


def changed_objects(objects: ChangedObjects) -> str | None:
    """Which objects of the pool are not those that the model saw; None if all are."""
    if objects.reason:
        return f"Whether objects of the pool changed since the model saw them is not known: {objects.reason}."
    found = []
    if objects.changed:
        found.append(f"{_objects(objects.changed)} changed since the model saw {_them(objects.changed)}")
    if objects.lost:
        found.append(f"{_objects(objects.lost)} {'is' if objects.lost == 1 else 'are'} gone")
    if not found:
        return None
    names = ", ".join(objects.first)
    return f"{' and '.join(found)}, such as {names}: what was labelled may not be what the model saw."


def head_of_changed(objects: ChangedObjects) -> str:
    """How that begins where it stands alone."""
    return "The pool may have changed." if objects.reason else "The pool changed."


def _objects(num: int) -> str:
    return "1 object of a chosen example" if num == 1 else f"{thousands(num)} objects of chosen examples"


def _them(num: int) -> str:
    return "it" if num == 1 else "them"


def _examples(num: int) -> str:
    return "1 example" if num == 1 else f"{thousands(num)} examples"
