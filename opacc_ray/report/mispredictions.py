"""The labelled examples that the model got wrong: which of them a page shows."""

from collections.abc import Sequence

from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.report.documents import Gallery, Misprediction
from opacc_ray.report.reliability import Beliefs

SHOWN = 40
"""Examples that a page shows."""


def mispredictions(known: Sequence[LabelledRound], beliefs: Beliefs | None) -> Gallery:
    """Return the mispredicted examples, each once: the surest first, or of a regression those that score least.

    An example is mispredicted if its outcome is below 1, and of a score if it is below one half.
    """
    is_score = known[0].measure != "accuracy"
    found: dict[str, Misprediction] = {}
    for item in known:
        confidence = beliefs.confidence[item.known.index].tolist() if beliefs else [None] * len(item.outcome)
        rows = zip(item.known.ids, item.predicted, item.truth, confidence, item.outcome.tolist(), strict=True)
        for id, said, truth, sure, outcome in rows:
            if outcome < (0.5 if is_score else 1):
                found.setdefault(
                    id,
                    Misprediction(
                        id=id,
                        round=item.number,
                        prediction=f"{float(said):.6g}" if is_score else said,
                        label=f"{float(truth):.6g}" if is_score else truth,
                        confidence=sure,
                        outcome=outcome,
                        not_shown=None,
                    ),
                )
    ordered = sorted(found.values(), key=lambda item: (item.outcome, -(item.confidence or 0.0), item.id))
    order = "the lowest scores" if is_score else "the surest" if beliefs else "by id"
    return Gallery(total=len(ordered), order=order, examples=ordered[:SHOWN])
