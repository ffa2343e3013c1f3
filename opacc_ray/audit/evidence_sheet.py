"""The sheet of a pack: where a reader of the AI Act, ISO/IEC TS 4213 or the NIST AI RMF finds what in it."""

from collections.abc import Sequence

from opacc_ray.audit.evidence_documents import SealState
from opacc_ray.runs.run import Run

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
