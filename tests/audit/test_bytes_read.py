"""What a verb reads from storage, counted at the server's door."""

from collections.abc import Iterator

import pytest
from local_s3 import LocalS3
from s3_proxies import CountingProxy
from synthetic_run import write_synthetic

from opacc_ray.audit import accuracy, verbs
from opacc_ray.labels import label_actions
from opacc_ray.runs.run import Run

SIZE, WIDTH, SHARD = 20_000, 512, 1024


@pytest.fixture(scope="module")
def run(s3: LocalS3) -> Run:
    """A first round of CSS on 20,000 examples with 512 neurons, labelled; 39 MB of features."""
    made = write_synthetic(f"{s3.create_bucket('wide')}/wide-00000001", SIZE, WIDTH, SHARD)
    verbs.select(made, "css", 100, {})
    label(made, 1)
    return made


def label(run: Run, number: int) -> None:
    chosen = run.read_chosen(number)
    rows = (f"{name},{said}" for name, said in zip(chosen.ids, chosen.predictions, strict=True))
    label_actions.import_labels(run, "labels.csv", "\n".join(["id,label", *rows]).encode())


@pytest.fixture
def door(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProxy]:
    with CountingProxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        yield proxy


@pytest.mark.slow
def test_neyman_reads_the_hidden_layer_once_for_all_rounds(run: Run, door: CountingProxy) -> None:
    """Later rounds read what is kept in one piece: its directions, 26 bytes an example, and columns, ids and places."""
    stored = sum(entry.size for entry in run.features.list("part-"))
    shares = []
    for _ in range(2):
        door.reset()
        verbs.next_round(Run.open(run.uri), 50, method="neyman")
        shares.append(door.total() / stored)
        requests = sum(door.requests.values())
        label(run, run.rounds()[-1])
    assert shares[0] > 0.9
    assert shares[1] < 0.02
    assert door.total(r"/features/part-") == 0
    assert requests < 60


@pytest.mark.slow
def test_next_round_and_estimate_read_under_two_percent_of_the_features(run: Run, door: CountingProxy) -> None:
    stored = sum(entry.size for entry in run.features.list())
    assert stored > 0.9 * SIZE * WIDTH * 4
    for method in ("css", "srs", "deepest"):
        door.reset()
        number = verbs.next_round(run, 50, method=method).round
        assert door.total() < 0.02 * stored, method
        num_shards = -(-SIZE // SHARD)
        columns = 0 if method == "srs" else 2
        of_features = sum(num for (_, path), num in door.requests.items() if "/features/part-" in path)
        assert of_features <= (columns + 2 + 4) * num_shards  # footer and ranges: the method's, ids, what is known
        label(run, number)
        door.reset()
        accuracy.estimate(run)
        assert door.total() < 0.02 * stored
        assert door.total(r"/features/part-") == 0
