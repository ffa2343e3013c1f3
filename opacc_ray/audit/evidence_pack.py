"""Pack a run into one archive, with which others check it and recompute its numbers without opacc.

    verify.py, SHEET.md     the verifier (:mod:`opacc_ray.audit.pack_verifier`), and where a reader finds what
    spec.json, log/, …      the files that the log names, and the other small files of the run
    signatures/             its signatures
    numbers/TRACK.json      what the newest estimate was computed from: labels, design, predictions

Features are not in it: their digest is in every draw.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.accuracy import accuracy_of, sample_of, with_labels
from opacc_ray.audit.evidence import FOLDER as SIGNATURES
from opacc_ray.audit.evidence import read_seal
from opacc_ray.audit.evidence_documents import EvidencePack, PackedNumber, SealState
from opacc_ray.audit.run_numbers import Asked, RunNumbers, asked_of, class_names, history_for, open_for_estimates
from opacc_ray.errors import DataError
from opacc_ray.estimators.label_noise import parts_with_a_design
from opacc_ray.estimators.metrics import Metric
from opacc_ray.estimators.population import SampleOf
from opacc_ray.estimators.prediction_powered import predict
from opacc_ray.estimators.scores import BINS, CALIBRATION, bins_of
from opacc_ray.estimators.totals import PredictedEvidence
from opacc_ray.labels.annotator_agreement import opinions_of_run
from opacc_ray.labels.grades import numbers_in
from opacc_ray.labels.labelled_rounds import LabelledRound, digest_of, read_rounds
from opacc_ray.lake.store_uris import open_store, split
from opacc_ray.parts.view import View
from opacc_ray.runs.commit_log import FOLDER as LOG
from opacc_ray.runs.commit_log import digest_of as digest_of_bytes
from opacc_ray.runs.estimate_documents import Stated
from opacc_ray.runs.feature_store import read_column
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.samplers.metric_estimates import forecast_of
from opacc_ray.samplers.neyman.regression import Fit, fit, uses_regression
from opacc_ray.selection import Selection

SMALL = (HEADER, "sanity.json", "listing.parquet", "report.html", "report.json", "report.md")

FORMULAS = ("pack_designs.py", "pack_numbers.py", "pack_tables.py", "pack_statement.py")
VERIFIER = {"verify.py": "pack_verifier.py"} | {name: name for name in FORMULAS}

Numbers = dict[str, Any]


def pack(run: Run, to: str) -> EvidencePack:
    """Write an archive; raises DataError if there is no estimate, or a track has labels after its newest one."""
    files, numbers = dict(_files(run)), list[PackedNumber]()
    for track in run.tracks():
        if track.logged(Stated):
            content = _numbers(track)
            files[f"numbers/{track.track or 'main'}.json"] = json.dumps(content, indent=1).encode()
            numbers.append(PackedNumber(track=track.track, estimate=content["estimate"]))
    if not numbers:
        raise DataError(f"{run.title} has no estimate, so a pack would state no number; run `opacc estimate` first")
    seals = [own for track in run.tracks() if (own := read_seal(track))]
    files["SHEET.md"] = sheet(run, seals).encode()
    for name, module in VERIFIER.items():
        files[name] = resources.files("opacc_ray.audit").joinpath(module).read_bytes()
    data, (folder, name) = _zipped(files), split(to)
    open_store(folder).write(name, data)
    return EvidencePack(
        run=run.uri,
        file=open_store(folder).uri_of(name),
        sha256=digest_of_bytes(data),
        files=len(files),
        head=run.head or "",
        signatures=sum(key.startswith(SIGNATURES) for key in files),
        numbers=numbers,
    )


def _files(run: Run) -> Iterator[tuple[str, bytes]]:
    """Yield the key and content of each file of the run that is packed."""
    logged = [key for commit in run.commits for key in commit.files]
    own = [entry.key for place in (LOG, SIGNATURES) for entry in run.store.list(place)]
    there = [key for key in SMALL if run.store.exists(key)]
    keys = list(dict.fromkeys([*there, *own, *logged]))
    copies = {key: run.store.read_if_there(key) for key in keys}
    for commit, _ in run.logged(Stated):  # of 0.2.0, kept as a copy only
        for key in commit.files:
            copies[key] = copies[key] or run.store.read_if_there(run.estimate_key)
    lost = next((key for key, data in copies.items() if data is None), None)
    if lost is not None:
        raise DataError(f"{run.store.uri_of(lost)} is lost; restore it from a backup")
    yield from ((key, data) for key, data in copies.items() if data is not None)


def _zipped(files: dict[str, bytes]) -> bytes:
    """Return an archive; equal files give equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return out.getvalue()


# -- what an estimate was computed from ----------------------------------------------------------------------


def _numbers(run: Run) -> Numbers:
    """Return all that the verifier needs of the newest estimate of a track."""
    rounds = read_rounds(run)
    commit = run.logged(Stated)[-1][0]
    stated = run.read_estimate()
    if stated is None or stated.labels_digest != digest_of(rounds):
        raise DataError(f"{run.title} has labels that its newest estimate does not count; run `opacc estimate` first")
    known = with_labels(run, rounds, partial=True)
    sample = sample_of(known)
    content: Numbers = {
        "track": run.track,
        "estimate": next(iter(commit.files)),
        "pool_size": known[0].selection.pool_size,
        "exact": run.spec.model.task == "classification" and known[0].measure == "accuracy",
        "classes_known": class_names(run) is not None,
        "rounds": [_round(item) for item in known],
    }
    tables = dict.fromkeys(table.by for table in stated.by_slice)
    with open_for_estimates(run, sample[0]) as view:
        asked = asked_of(run, list(stated.metrics), list(tables))
        numbers = RunNumbers(run, rounds, known, view, asked.slicings(view), asked=asked.metrics)
        content |= {"parts": _parts(numbers, asked, view), "counts": _counts(numbers)}
        content["design_based"] = accuracy_of(run, *sample, stated.level, view).design_based
        if uses_regression(sample[0]):
            content |= _predicted(content["rounds"], fit(view, *sample, history_for(run, sample[0])), sample[0])
        if run.spec.pool.population is not None:
            content["population"] = _population(numbers, run.spec.pool.population, view)
        if stated.assisted is not None:
            content["prediction"] = _prediction(sample[0], read_column(run, "confidence"))
    if any(len(own) > 1 for item in known for own in item.opinions):
        content["opinions"] = _opinions(run, known)
    return content


def _predicted(parts: Sequence[Numbers], found: Fit, selections: Sequence[Selection]) -> Numbers:
    """Add what is predicted of each label; return what is predicted of the pool."""
    for part, own in zip(parts, found.rounds, strict=True):
        p = own.failure
        part |= {
            "labelled": own.labelled.tolist(),
            "leverage": own.leverage.tolist(),
            "predicted": float(p.sum()),
            "spread": float((p * (1 - p) * own.odds).sum()),
        }
    labelled = np.unique(np.concatenate([part.index for part in selections]))
    elsewhere = float(found.failure.sum() - found.failure[labelled].sum())  # predicted failures without a label
    return {"trust": found.trust, "elsewhere": elsewhere}


def _parts(numbers: RunNumbers, asked: Asked, view: View) -> Numbers:
    """Return each partition of the pool: slices by predicted class, with what rounds predict of these groups."""
    estimates, found = numbers.estimates, Numbers()
    of_confidence = [metric for metric in asked.metrics if metric.judges_confidence]
    for by in (None, *estimates.slicings, *of_confidence):
        evidence, own = estimates.totals(by).evidence, Numbers()
        own["names"] = list(estimates.slicings[by].names) if isinstance(by, str) else [""]
        own |= {"classes": estimates.classes, "sizes": evidence.sizes.tolist()}
        own["groups"] = evidence.groups.code(evidence.index).tolist()
        if isinstance(evidence, PredictedEvidence):
            own["sums"] = [[column.tolist() for column in sums] for sums in evidence.sums]
        if isinstance(by, Metric) and by.name == CALIBRATION:
            confidence = view.column("confidence")
            bins = bins_of(confidence)
            sums = np.bincount(bins, weights=confidence, minlength=BINS)
            mean = sums / np.maximum(np.bincount(bins, minlength=BINS), 1)
            own |= {"names": list(range(BINS)), "confidence": mean.tolist()}
        elif isinstance(by, Metric):
            own["base"] = estimates.linear(by).base
            own["coefficient"] = evidence.groups.factor(evidence.index).tolist()
        found[str(by or "")] = own
    return found


def _counts(numbers: RunNumbers) -> dict[str, list[float]]:
    """Return the counts of each label by name, for ratios of totals."""
    return {name: own.tolist() for name, own in (numbers.estimates.sample.counts or {}).items()}


def _population(numbers: RunNumbers, asked: SampleOf, view: View) -> Numbers:
    """Return what the pool is a sample of; of clusters also their sizes, and the failures predicted in each."""
    if asked.cluster is None:
        return {"total": asked.total, "clusters": None}
    codes, sample = view.slicing(asked.cluster).codes, numbers.estimates.sample
    forecast = forecast_of(sample, view, len(codes))
    labelled = np.concatenate([part.index for part in sample.selections])
    clusters = {
        "size": np.bincount(codes).tolist(),
        "forecast": np.bincount(codes, weights=forecast).tolist(),
        "of_label": codes[labelled].tolist(),
        "of_label_forecast": forecast[labelled].tolist(),
    }
    return {"total": asked.total, "clusters": clusters}


def _prediction(selections: Sequence[Selection], confidence: NDArray[Any]) -> Numbers:
    """Return what the confidence predicts of the labels and of the pool."""
    found = predict(selections, confidence.astype(np.float64))
    return {"failure": found.failure.tolist(), "mean": found.mean, "largest": found.largest}


def _opinions(run: Run, known: Sequence[LabelledRound]) -> Numbers:
    """Return the opinions on each label, by round; ``twice`` is the design of the part that has two."""
    counts = run.spec.model.counts is not None
    said = [[[numbers_in(text) if counts else text for text in own] for own in item.opinions] for item in known]
    differences = [item.disagreement[~np.isnan(item.disagreement)] for item in known]
    twice = parts_with_a_design([item.known for item in known], [~np.isnan(item.disagreement) for item in known])
    units, numbers = opinions_of_run(run)
    return {
        "said": said,
        "differences": [own.tolist() for own in differences],
        "twice": [{"index": own.index.tolist(), "design": own.to_dict()["design"]} for own in twice],
        "units": {"labels": [list(own.values()) for own in units.values()], "numbers": numbers},
    }


def _round(item: LabelledRound) -> Numbers:
    known = item.known
    answers = zip(known.ids, item.predicted, item.truth, strict=True)
    return {
        "round": item.number,
        "draws": np.flatnonzero(item.labelled).tolist(),
        "missing": len(item.missing),
        "gaps": item.nonresponse is not None,
        "index": known.index.tolist(),
        "outcome": item.outcome.tolist(),
        "answers": [list(answer) for answer in answers],  # id, prediction, label
        "design": known.to_dict()["design"],
    }


ROWS = (
    (
        "validation and testing procedures",
        "`rounds/*/draws/*/selection.json`: sampling method, seed, inclusion probabilities",
        "AI Act Annex IV 2(g); TS 4213: sampling and test design; NIST Measure 2.1",
    ),
    (
        "data used and their main characteristics",
        "`spec.json` (pool, filter, listing), `listing.parquet`, `sanity.json`, `rounds/*/draws/*/predictions.parquet`",
        "AI Act Annex IV 2(g); TS 4213: representativeness of test data; NIST Measure 2.2, 2.3",
    ),
    (
        "metrics of accuracy",
        "`estimates/*.json`: `value`, `low`, `high`, `level`, `by_design`, `metrics`; `numbers/` to recompute them",
        "AI Act Annex IV 2(g) and Art. 15; TS 4213: metrics and statistical significance; NIST Measure 2.3, 2.5",
    ),
    (
        "potentially discriminatory impacts",
        "`by_slice` and `by_class` of `estimates/*.json`: each with an interval that holds for all slices at once",
        "AI Act Annex IV 2(g); NIST Measure 2.11",
    ),
    (
        "test logs",
        "`log/*.json`: draws, labels, corrections, closings, estimates, with times; files of labels as they came",
        "AI Act Annex IV 2(g) and Art. 12; NIST Measure 2.1",
    ),
    (
        "reports dated and signed by the responsible persons",
        "`signatures/*.json` (DSSE, ed25519): name, role, time, head of the log; `report.html`",
        "AI Act Annex IV 2(g); NIST Measure 2.1",
    ),
    (
        "what was predetermined",
        "the seal in the log: metrics, level, slices, goal, before the first label",
        "AI Act Annex IV 2(f), 2(g); NIST Measure 2.13",
    ),
    (
        "limits of the measurement",
        "`design_based`, `reason`, `notes`, `label_noise`, `excluded` of `estimates/*.json`",
        "TS 4213: reporting; NIST Measure 2.5, 2.13",
    ),
)


def sheet(run: Run, seals: Sequence[SealState]) -> str:
    """Return the sheet of a run as Markdown."""
    lines = [
        f"# Evidence of {run.name}",
        "",
        "Check it: `python verify.py evidence.zip PUBLIC_KEY.pem` (Python, NumPy and SciPy; no opacc).",
        "",
        "| what is asked | where it is | by |",
        "|---|---|---|",
        *(f"| {what} | {where} | {by} |" for what, where, by in ROWS),
        "",
        "The sheet names places. Whether they are enough for a system is for its provider to judge.",
        "",
    ]
    for own in seals:
        goal = "" if own.seal.half_width is None else f", until ±{own.seal.half_width:g}"
        parts = f" by {', '.join(own.seal.by)}" if own.seal.by else ""
        lines.append(
            f"Sealed at {own.at}{f' by {own.seal.promised_by}' if own.seal.promised_by else ''}: "
            f"{', '.join(own.seal.metrics)}{parts} at level {own.seal.level:g}{goal}."
        )
        lines += [f"- Deviation: {text}." for text in own.deviations]
    if not seals:
        lines.append("Nothing was sealed before the first label.")
    return "\n".join(lines) + "\n"
