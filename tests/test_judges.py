"""Judges: what they may say, what they teach the failure model, what they are worth by the labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation.forecast import AccuracyForecast, worth_of_judges
from opacc_ray.parts.view import view_of
from opacc_ray.pool import scores_of
from opacc_ray.samplers.base import Previous
from opacc_ray.samplers.neyman.failure_model import read_signals
from opacc_ray.samplers.neyman.signals import JUDGE, JUDGED

N = 2000
RIGHT = np.random.default_rng(0).random(N) < 0.75
SENSITIVITY, SPECIFICITY = 0.9, 0.7
SAYS = np.where(
    RIGHT, np.random.default_rng(1).random(N) < SENSITIVITY, np.random.default_rng(2).random(N) > SPECIFICITY
)
PARTLY = np.where(np.random.default_rng(3).random(N) < 0.4, SAYS, np.nan)


def audit(pool: opacc.Pool, sizes: tuple[int, ...], seed: int = 0) -> list[opacc.Labelled]:
    rounds: list[opacc.Labelled] = []
    for number, size in enumerate(sizes):
        chosen = opacc.select(pool, budget=size, seed=10 * seed + number, previous=rounds)
        rounds.append(opacc.Labelled(chosen, outcomes=RIGHT[chosen.index]))
    return rounds


@pytest.mark.parametrize(
    ("said", "scores"),
    [
        ([0.2, None, 1, float("nan")], [0.2, np.nan, 1, np.nan]),
        (["right", "", "Wrong", "partly"], [1, np.nan, 0, 0.5]),
        ([True, False, "?", "yes"], [1, 0, np.nan, 1]),
        (np.array([0.2, np.nan, 1, 0], dtype=np.float32), np.array([0.2, np.nan, 1, 0], dtype=np.float32)),
        (np.array([True, False, False, True]), [1, 0, 0, 1]),
        (["cat", "dog", None, "cat"], [1, 1, np.nan, 0]),
    ],
)
def test_a_judge_gives_scores_verdicts_or_classes(said: list[Any], scores: list[float]) -> None:
    assert np.array_equal(scores_of("gpt", said, ["cat", "dog", "dog", "dog"], 4), scores, equal_nan=True)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["fine", "right"], r'judge .gpt. says "fine"; give a score from 0 to 1 .*, or the name of a class'),
        ([1.5, 0.2], r'judge .gpt. says "1.5"'),
        ([None, ""], r"judge 'gpt' has judged no example"),
        ([1], r"features disagree about the number of examples: prediction 2, judge 'gpt' 1"),
    ],
)
def test_a_judge_that_says_something_else_is_refused(said: list[Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        opacc.Pool(prediction=["cat", "dog"], judges={"gpt": said})


def test_where_a_judge_has_not_judged_its_forecast_stands_for_it() -> None:
    doubt = np.random.default_rng(4).normal(size=N) + RIGHT
    pool = opacc.Pool(confidence=1 / (1 + np.exp(-doubt)), judges={"gpt": PARTLY, "rules": SAYS.astype(float)})
    signals = read_signals(view_of(pool), 0)
    assert signals.kinds[2:] == (JUDGED, JUDGE, JUDGE)
    judged, gpt, rules = signals.values[2:]
    there = ~np.isnan(PARTLY)
    assert judged.mean() == pytest.approx(0, abs=1e-12)
    assert len(np.unique(gpt[there])) == 2
    assert gpt[there & (PARTLY == 0)][0] > gpt[there & (PARTLY == 1)][0]  # larger where failures are
    assert np.corrcoef(gpt[~there], doubt[~there])[0, 1] < -0.9
    assert rules.mean() == pytest.approx(0, abs=1e-12)


@pytest.mark.slow
def test_a_judge_alone_narrows_the_interval_and_a_useless_one_hardly_widens_it() -> None:
    useless = np.random.default_rng(5).permutation(SAYS).astype(float)
    pools = {
        "none": opacc.Pool([str(place) for place in range(N)]),
        "good": opacc.Pool(judges={"gpt": SAYS.astype(float)}),
        "partly": opacc.Pool(judges={"gpt": PARTLY}),
        "useless": opacc.Pool(judges={"gpt": useless}),
    }
    width, covered = dict.fromkeys(pools, 0.0), 0
    repetitions = 12
    for name, pool in pools.items():
        for seed in range(repetitions):
            found = opacc.estimate(audit(pool, (20, 60, 120), seed), pool=pool)
            assert found.design_based
            width[name] += found.high - found.low
            covered += found.low <= RIGHT.mean() <= found.high
    assert width["good"] < 0.87 * width["none"]
    assert width["good"] < width["partly"] < 1.01 * width["none"]
    assert width["useless"] < 1.035 * width["none"]  # the root of 1.07
    assert covered >= 4 * repetitions - 8  # a chance of less than 1e-3 at 95 %


def test_labels_tell_what_a_judge_is_worth() -> None:
    pool = opacc.Pool(judges={"gpt": PARTLY, "rules": SAYS.astype(float)})
    rounds = audit(pool, (60, 240))
    found = opacc.assess_judges(rounds, pool=pool)
    for name, there in (("gpt", ~np.isnan(PARTLY)), ("rules", np.ones(N, dtype=bool))):
        own = found[name]
        assert own.judged == there.sum()
        assert own.labels == np.count_nonzero(there[np.concatenate([part.selection.index for part in rounds])])
        right, says = RIGHT[there], SAYS[there]
        truth = {"sensitivity": says[right].mean(), "specificity": 1 - says[~right].mean(), "kappa": kappa(right, says)}
        for key, value in truth.items():
            stated = getattr(own, key)
            assert stated.low <= value <= stated.high
            assert 0 < stated.high - stated.low < 0.45
    assert found["rules"].kappa.high - found["rules"].kappa.low < found["gpt"].kappa.high - found["gpt"].kappa.low


def kappa(right: Any, says: Any) -> float:
    agreement = np.mean(right == says)
    chance = right.mean() * says.mean() + (1 - right.mean()) * (1 - says.mean())
    return float((agreement - chance) / (1 - chance))


def test_a_judge_that_calls_everything_right_has_an_interval() -> None:
    pool = opacc.Pool(judges={"gpt": np.ones(N)})
    rounds = audit(pool, (60,))
    own = opacc.assess_judges(rounds, pool=pool)["gpt"]
    assert (own.sensitivity.value, own.specificity.value, own.kappa.value) == (1, 0, 0)
    with pytest.raises(SpecError, match=r"the pool has no judges: give Pool\(judges="):
        opacc.assess_judges(rounds, pool=opacc.Pool([str(place) for place in range(N)]))


def test_a_history_with_the_same_judge_teaches_what_it_is_worth() -> None:
    """Labels of other examples that the judge has judged narrow the first round; without its verdicts they do not."""
    half = np.arange(N) < N // 2
    ids = [str(place) for place in range(N // 2)]
    before = opacc.Pool(judges={"gpt": SAYS[half].astype(float)})
    now = opacc.Pool(ids, judges={"gpt": SAYS[~half].astype(float)})
    outcome = RIGHT[half].astype(float)
    told = opacc.History(labelled=[{"pool": before, "outcomes": outcome}])
    taught = AccuracyForecast(view_of(now), history=told)
    untaught = AccuracyForecast(view_of(opacc.Pool(ids, judges=now.judges)))
    assert taught.labels(0.04).neyman < 0.9 * untaught.labels(0.04).neyman
    assert taught.value(1, 0.95) == pytest.approx(RIGHT[~half].mean(), abs=0.03)


def test_forecasts_know_what_judges_save() -> None:
    pool = opacc.Pool(judges={"gpt": PARTLY})
    index, outcome = zip(*((own.selection.index, own.outcome(pool)) for own in audit(pool, (60, 240))), strict=True)
    known = Previous.of(np.concatenate(index), np.concatenate(outcome))
    found = worth_of_judges(view_of(pool), known)
    assert found is not None
    assert found.calls == np.count_nonzero(~np.isnan(PARTLY))
    assert found.complete is not None
    assert found.complete < 0.9 < 1.05 < found.without
    assert worth_of_judges(view_of(opacc.Pool(confidence=np.full(N, 0.8)))) is None


def test_a_csv_audit_has_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Judges of a file: read by name, kept in the run, stated by estimate, budget and report; labels come by CSV."""
    import json

    from opacc_ray.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    said = ["" if np.isnan(value) else "right" if value else "wrong" for value in PARTLY]
    rows = (f"a{place},r{place},{text}\n" for place, text in enumerate(said))
    Path("answers.csv").write_text("id,reply,gpt\n" + "".join(rows))
    assert main(["run", "answers.csv", "--columns", "answer=reply,judges=gpt", "--budget", "150"]) == 0
    judged = int(np.count_nonzero(~np.isnan(PARTLY)))
    assert f"gpt has judged {judged} of {N} answers; if these were drawn at random, audit" in capsys.readouterr().err
    [run] = Path("audits").glob("*/spec.json")
    kept = json.loads((run.parent / "history" / "history.json").read_text())
    assert kept["sources"][0] | {"uri": ""} == {
        "kind": "judge",
        "uri": "",
        "examples": judged,
        "column": "gpt",
    }
    chosen = json.loads(next(run.parent.glob("rounds/1/*/selection.json")).read_text())["ids"]
    labels = (f"{name},{'right' if RIGHT[int(name[1:])] else 'wrong'}\n" for name in chosen)
    Path("labels.csv").write_text("id,label\n" + "".join(labels))
    assert main(["labels", "import", str(run.parent), "labels.csv"]) == 0
    assert main(["estimate", str(run.parent)]) == 0
    stated = json.loads((run.parent / "estimate.json").read_text())
    assert stated["design_based"]
    assert stated["low"] <= RIGHT.mean() <= stated["high"]
    gpt = stated["judges"]["gpt"]
    assert gpt["sensitivity"]["low"] <= SENSITIVITY <= gpt["sensitivity"]["high"]
    assert main(["report", str(run.parent)]) == 0
    assert "What the judges are worth" in (run.parent / "report.html").read_text()
    assert "| gpt |" in (run.parent / "report.md").read_text()
