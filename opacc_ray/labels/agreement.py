"""How far the annotators of a run agree: over the examples of all its tracks, before any correction."""

from opacc_ray.labels.annotator_agreement import alpha, opinions_of, pairs
from opacc_ray.labels.documents import LabelAgreement, PairOfAnnotators
from opacc_ray.labels.labelled_rounds import canonical_form
from opacc_ray.labels.log import read_log
from opacc_ray.labels.rows import Label
from opacc_ray.runs.run import Run


def agreement(run: Run) -> LabelAgreement:
    """Measure how far annotators agree; labels in conflict are what is measured, so none is refused."""
    answers: dict[str, list[Label]] = {}
    for row in read_log(run).labels():
        answers.setdefault(row.id, []).append(row)
    read = canonical_form(run)
    opinions = {id: opinions_of(given, read) for id, given in answers.items()}
    opinions = {id: said for id, said in opinions.items() if len(said) > 1}
    are_numbers = run.spec.model.task == "regression"
    return LabelAgreement(
        run=run.uri,
        examples=len(opinions),
        alpha=alpha(opinions, are_numbers=are_numbers),
        scale="interval" if are_numbers else "nominal",
        pairs=[PairOfAnnotators(**pair._asdict()) for pair in pairs(opinions, are_numbers=are_numbers)],
    )
