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

from opacc_ray.audit.accuracy import sample_of, with_labels
from opacc_ray.audit.evidence import FOLDER as SIGNATURES
from opacc_ray.audit.evidence import read_seal
from opacc_ray.audit.evidence_documents import EvidencePack, PackedNumber
from opacc_ray.audit.evidence_sheet import sheet
from opacc_ray.audit.run_numbers import RunNumbers, asked_of, history_for, open_for_estimates
from opacc_ray.errors import DataError
from opacc_ray.estimators.statement import Circumstances
from opacc_ray.estimators.totals import PredictedEvidence
from opacc_ray.labels.labelled_rounds import LabelledRound, digest_of, read_rounds
from opacc_ray.lake.store_uris import open_store, split
from opacc_ray.runs.commit_log import FOLDER as LOG
from opacc_ray.runs.commit_log import digest_of as digest_of_bytes
from opacc_ray.runs.estimate_documents import Stated
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.samplers.neyman.regression import Fit, fit, recorded, uses_regression
from opacc_ray.selection import Selection

SMALL = (HEADER, "sanity.json", "listing.parquet", "report.html", "report.json", "report.md")

VERIFIER = {"verify.py": "pack_verifier.py"} | {own: own for own in ("pack_designs.py", "pack_numbers.py")}

Numbers = dict[str, Any]


def pack(run: Run, to: str) -> EvidencePack:
    """Write an archive; raises DataError if a track has labels that its newest estimate does not count."""
    files, numbers = dict(_files(run)), list[PackedNumber]()
    for track in run.tracks():
        if track.logged(Stated):
            content = _numbers(track)
            files[f"numbers/{track.track or 'main'}.json"] = json.dumps(content, indent=1).encode()
            numbers.append(PackedNumber(track=track.track, estimate=content["estimate"]))
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
    selections, outcomes = sample_of(known)
    content: Numbers = {
        "estimate": next(iter(commit.files)),
        "pool_size": selections[0].pool_size,
        "measure": known[0].measure,
        "exact": run.spec.model.task == "classification",
        "kind": "predicted" if uses_regression(selections) else "design",
        "level": Circumstances(stated.level, stated.goal).own_level,
        "widened": any(len(own) > 1 for item in known for own in item.opinions),
    }
    parts = [_round(item) for item in known]
    tables = dict.fromkeys(table.by for table in stated.by_slice)
    with open_for_estimates(run, selections) as view:
        asked = asked_of(run, list(stated.metrics), list(tables))
        numbers = RunNumbers(run, rounds, known, view, asked.slicings(view), asked=asked.metrics)
        content |= {"parts": _parts(numbers), "counts": _counts(numbers)}
        if uses_regression(selections):
            content |= _predicted(parts, fit(view, selections, outcomes, history_for(run, selections)), selections)
    return content | {"rounds": parts}


def _predicted(parts: Sequence[Numbers], found: Fit, selections: Sequence[Selection]) -> Numbers:
    """Add what is predicted of each label; return what is predicted of the pool."""
    for part, selection, own in zip(parts, selections, found.rounds, strict=True):
        p = own.failure
        part |= {
            "labelled": own.labelled.tolist(),
            "probability": recorded(selection).probability.tolist(),
            "leverage": own.leverage.tolist(),
            "predicted": float(p.sum()),
            "spread": float((p * (1 - p) * own.odds).sum()),
        }
    labelled = np.unique(np.concatenate([part.index for part in selections]))
    elsewhere = float(found.failure.sum() - found.failure[labelled].sum())  # predicted failures without a label
    return {"trust": found.trust, "elsewhere": elsewhere}


def _parts(numbers: RunNumbers) -> Numbers:
    """Return each partition of the pool: slices by predicted class, with what rounds predict of these groups."""
    found = Numbers()
    for by in (None, *numbers.slicings):
        evidence = numbers.estimates.totals(by).evidence
        found[by or ""] = {
            "names": list(numbers.slicings[by].names) if by else [""],
            "classes": numbers.estimates.classes,
            "sizes": evidence.sizes.tolist(),
            "groups": evidence.groups.code(evidence.index).tolist(),
        }
        if isinstance(evidence, PredictedEvidence):
            found[by or ""]["sums"] = [[own.tolist() for own in sums] for sums in evidence.sums]
    return found


def _counts(numbers: RunNumbers) -> dict[str, list[float]]:
    """Return the counts of each label by name, for ratios of totals."""
    return {name: own.tolist() for name, own in (numbers.estimates.sample.counts or {}).items()}


def _round(item: LabelledRound) -> Numbers:
    known = item.known
    answers = zip(known.ids, item.predicted, item.truth, strict=True)
    return {
        "index": known.index.tolist(),
        "outcome": item.outcome.tolist(),
        "answers": [list(answer) for answer in answers],  # id, prediction, label
        "design": known.to_dict()["design"],
    }
