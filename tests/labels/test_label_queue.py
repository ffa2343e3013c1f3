"""The queue of the page: one example per person, every answer saved at once, nothing lost when the server ends."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from labelled_pages import CLASSES, run_to_label
from logged import close, label_files

from opacc_ray.audit import verbs
from opacc_ray.audit.status import status
from opacc_ray.errors import LabelError, StorageError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.labels.desk import LOOK, RESERVED, LabelQueue, TakenError, UnsureError
from opacc_ray.labels.formats import checked_annotator
from opacc_ray.labels.label_actions import correct, import_labels, withdraw
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.store import LocalStore
from opacc_ray.runs.run import Run


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_to_label(str(tmp_path), 12, CLASSES)


def label_all(queue: LabelQueue, name: str, text: str | None = "cat") -> list[int]:
    """Answer until nothing is left for somebody; returns what they were given."""
    given = []
    while (number := queue.next(name)) is not None:
        queue.save(name, number, text)
        given.append(number)
    return given


def test_every_example_is_labelled_once_in_the_order_of_choice(run: Run) -> None:
    queue = LabelQueue(run)
    assert queue.ids == list(run.read_selection(1).ids)
    assert label_all(queue, "ann") == list(range(12))
    [only] = read_rounds(run)
    assert only.truth == ("cat",) * 12
    assert verify(run.uri).sound


def test_a_class_called_unsure_is_not_read_as_cannot_tell(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 2, ["cat", "dog", "unsure"])
    queue = LabelQueue(run)
    queue.save("ann", 0, "unsure")
    queue.save("ann", 1, None)
    [only] = read_rounds(run)
    assert only.truth == ("unsure",)
    assert only.unsure == (queue.ids[1],)


def test_two_people_are_never_given_the_same_example(run: Run) -> None:
    queue = LabelQueue(run)
    first, second = queue.next("ann"), queue.next("bob")
    assert first != second
    assert queue.next("ann") == first  # a reload shows the same again
    given = []
    with ThreadPoolExecutor(4) as people:
        for part in people.map(lambda name: label_all(queue, name), ["ann", "bob", "cy", "dan"]):
            given += part
    assert sorted(given) == list(range(12))


def test_the_overlap_is_given_to_two_people_and_no_third(run: Run) -> None:
    queue = LabelQueue(run, overlap=0.5)
    assert queue.progress("ann") == (0, 18, 0)
    assert len(label_all(queue, "ann")) == 12
    assert len(label_all(queue, "bob", "dog")) == 6
    assert label_all(queue, "cy") == []
    assert queue.progress("bob") == (18, 18, 6)
    assert queue.num_different() == 6
    with pytest.raises(LabelError, match="labels in conflict on 6 example"):
        read_rounds(run)
    correct(run, queue.ids[0], "cat", "cy")


def test_an_unanswered_example_is_reserved_for_another_annotator_later(run: Run) -> None:
    clock = Clock()
    queue = LabelQueue(run, clock=clock)
    assert queue.next("ann") == 0
    assert RESERVED == 15 * 60  # which the page calls a quarter of an hour
    clock.now = RESERVED - 1
    assert queue.next("bob") == 1
    clock.now = RESERVED + 1
    assert queue.next("cy") == 0
    queue.save("cy", 0, "cat")
    with pytest.raises(TakenError, match="somebody else has labelled this example"):
        queue.save("ann", 0, "dog")
    assert queue.next("ann") == 2


def test_undo_withdraws_the_answer_and_shows_the_example_again(run: Run) -> None:
    queue = LabelQueue(run)
    for text in ("cat", "dog"):
        queue.save("ann", queue.next("ann") or 0, text)
    assert queue.next("ann") == 2
    undone = queue.undo("ann")
    assert undone is not None
    assert (undone.number, undone.label) == (1, "dog")
    assert queue.next("ann") == 1
    assert queue.next("bob") == 2  # what ann gave back
    assert status(run).rounds[0].labelled == 1
    queue.save("ann", 1, "owl")
    assert read_rounds(run)[0].truth == ("cat", "owl")
    assert [queue.undo("ann") is not None for _ in range(3)] == [True, True, False]
    assert queue.undo("bob") is None


def test_a_new_server_goes_on_from_what_the_run_holds(run: Run) -> None:
    first = LabelQueue(run, overlap=0.5)
    for _ in range(5):
        first.save("ann", first.next("ann") or 0, "cat")
    second = LabelQueue(run, overlap=0.5)
    assert second.progress("ann") == first.progress("ann")
    assert second.next("ann") == 5
    undone = second.undo("ann")
    assert undone is not None
    assert undone.number == 4
    assert LabelQueue(run, overlap=0.5).next("ann") == 4


@pytest.mark.parametrize("second", ["dog", None])
def test_an_answer_that_its_author_gave_elsewhere_is_not_replaced_unseen(run: Run, second: str | None) -> None:
    """Two tabs show the same example; a restart of the server between them changes nothing."""
    first = LabelQueue(run).save("ann", 0, "cat")
    queue = LabelQueue(run)
    for over in (None, "another version"):
        with pytest.raises(UnsureError, match="You already answered this example on another page: cat") as caught:
            queue.save("ann", 0, second, over=over)
        assert (caught.value.over, caught.value.sure) == (first.file, None)
    assert (queue.saved, len(label_files(run, 1))) == (0, 1)
    assert queue.save("ann", 0, "cat") == first, "the same answer again is no question, and is not written again"
    assert len(label_files(run, 1)) == 1
    changed = queue.save("ann", 0, second, over=first.file)
    with pytest.raises(UnsureError, match=f"another page: {second or 'can’t tell'}"):
        queue.save("ann", 0, "owl", over=first.file)
    assert queue.save("ann", 0, "owl", over=changed.file).label == "owl"


def test_an_answer_from_a_file_counts_as_one_given_elsewhere(run: Run) -> None:
    queue = LabelQueue(run)
    import_labels(run, "back.csv", f"id,label,annotator\n{queue.ids[0]}, cat ,ann\n".encode())
    queue.look(now=True)
    assert queue.save("ann", 0, "cat").label == "cat"
    with pytest.raises(UnsureError, match="another page: cat"):
        queue.save("ann", 0, "dog")
    assert len(label_files(run, 1)) == 1


def test_actions_of_other_processes_are_seen(run: Run) -> None:
    clock = Clock()
    queue, other = LabelQueue(run, clock=clock), LabelQueue(run)
    other.save("bob", other.next("bob") or 0, "cat")
    text = "id,label\n" + "".join(f"{id},dog\n" for id in queue.ids[1:4])
    import_labels(run, "more.csv", text.encode())
    correct(run, queue.ids[4], "owl", "cy")
    clock.now = LOOK - 0.1
    queue.look()
    assert queue.next("ann") == 0
    clock.now = LOOK + 0.1
    queue.look()
    assert queue.next("ann") == 5
    withdraw(run, queue.ids[2])
    queue.look(now=True)
    assert LabelQueue(run).next("ann") == queue.next("dan") == 2


def test_an_example_keeps_its_number_when_a_round_is_closed_while_it_is_shown(tmp_path: Path) -> None:
    """A browser shows an example by its number, and answers that number."""
    run, clock = run_to_label(str(tmp_path), 12, CLASSES, budget=6), Clock()
    queue = LabelQueue(run, clock=clock)
    shown = list(queue.ids)
    text = "id,label\n" + "".join(f"{id},dog\n" for id in shown[:3])
    import_labels(run, "more.csv", text.encode())
    verbs.next_round(run, 6, close=True)
    again = [id for id in shown[3:] if id in run.read_selection(2).ids]
    given_up = [id for id in shown[3:] if id not in again]
    clock.now = LOOK + 0.1
    queue.look()
    assert queue.ids[:6] == shown
    for id in given_up:
        with pytest.raises(TakenError, match="the round was closed or drawn again without this example"):
            queue.save("ann", shown.index(id), "cat")
    assert set(label_all(queue, "ann")) == {queue.ids.index(id) for id in run.read_selection(2).ids}
    assert all(label == "cat" for label in read_rounds(run)[1].truth)
    assert LabelQueue(run).ids[:6] == shown


def test_an_answer_to_a_round_that_was_just_closed_is_reported_as_unused(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 12, CLASSES, budget=6)
    queue = LabelQueue(run)
    close(run, 1, run.read_selection(1).ids)
    with pytest.raises(TakenError, match="the round was closed or drawn again without this example"):
        queue.save("ann", 0, "cat")
    assert queue.next("ann") is None


def test_an_answer_that_cannot_be_written_changes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = LabelQueue(run)
    assert queue.next("ann") == 0
    with monkeypatch.context() as patch:

        def fail(self: LocalStore, key: str, data: bytes) -> None:
            raise StorageError("the disk is full")

        patch.setattr(LocalStore, "write", fail)
        with pytest.raises(StorageError):
            queue.save("ann", 0, "cat")
    assert queue.next("ann") == 0
    assert queue.progress("ann").done == 0
    queue.save("ann", 0, "cat")
    assert read_rounds(run)[0].truth == ("cat",)


@pytest.mark.parametrize(
    ("text", "label", "question"),
    [
        ("1,250", "1.25", "1,250 means 1.25: the comma is a decimal point here."),
        ("-12,500", "-12.5", "means -12.5"),
        ("2000", "2000", None),
        ("-200", "-200", None),
        ("2,75", "2.75", None),
        ("0,125", "0.125", None),
        ("1,2500", "1.25", None),
    ],
)
def test_an_unlikely_number_is_asked_about_before_it_is_saved(
    tmp_path: Path, text: str, label: str, question: str | None
) -> None:
    run = run_to_label(str(tmp_path), 3, None, task="regression", error_scale=20.0)
    queue = LabelQueue(run)
    if question:
        with pytest.raises(UnsureError) as caught:
            queue.save("ann", 0, text)
        assert str(caught.value).startswith(question) or question in str(caught.value)
        assert (caught.value.over, caught.value.sure) == (None, text)
        assert label_files(run, 1) == []
        with pytest.raises(UnsureError):
            queue.save("ann", 0, text, sure="another text")
    assert queue.save("ann", 0, text, sure=text if question else None).label == label
    assert read_rounds(run)[0].truth == (label,)


@pytest.mark.parametrize("name", [None, 3, "", "  ", "a\nb", "x" * 201])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(LabelError, match="give a name of 1 to 200 letters"):
        checked_annotator(name)
