"""How likely each example is to fail, learnt from the model's own signals and the few labels there are.

A handful of *experts*, Bayesian logistic regressions that look at more or fewer signals, are each fitted to the labels
(maximum a posteriori), and their predictions averaged by how well each explains them (Laplace's evidence):

    logit p_k(x) = β_k · x,   β_k ~ N(mean, scale_k²)           p(x) = Σ_k w_k p_k(x),   w_k ∝ prior_k · evidence_k

Before any label, p is the model's own word, tempered: logit p = 0.8 · logit(1 - confidence), for models are
overconfident. One expert looks at nothing at all. It holds 6 % of the prior and so keeps p away from 0 where the
model is sure of itself; and where the signals turn out useless it takes over, and p is flat. Where failures have
another cause than doubt, say two classes swapped, the experts that give each predicted class its own rate take over
within some 30 labels. See D. J. C. MacKay, "The evidence framework applied to classification networks", Neural
Computation 4 (1992).

Outcomes may be scores: the likelihood is then a quasi-likelihood, its dispersion that of the labels.

Legend: N pool, k labels, d signals, f failure = 1 - outcome in [0, 1], p its expectation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.belief.signals import Signals

_STEPS = 25
_LARGEST_STEP = 4.0
_LOWEST = 1e-6  # p stays inside [_LOWEST, 1 - _LOWEST]
_SLOPE = 0.8  # prior mean of the coefficient of logit(1 - confidence)
_INTERCEPT_SCALE = {True: 1.0, False: 1.5}
"""With confidence, around 0; without, around the logit of the share of failures that the model itself expects."""


class Expert(NamedTuple):
    """What one regression looks at: standard deviation of the coefficients, per kind of signal; without one, unseen."""

    prior: float
    scale: dict[str, float]


_DOUBT = {"confidence": 0.3, "surprise": 0.5}
EXPERTS = (
    Expert(0.06, {}),
    Expert(0.188, {"confidence": 0.3}),
    Expert(0.188, _DOUBT),
    Expert(0.188, _DOUBT | {"prediction": 0.5, "direction": 0.45}),
    Expert(0.188, _DOUBT | {"prediction": 3.0}),
    Expert(0.188, {"prediction": 3.0, "direction": 2.7}),
)


class Fit(NamedTuple):
    """One expert, fitted."""

    evidence: float  # log
    intercept: float
    signal: NDArray[np.float64]  # (d,) coefficients
    of_class: NDArray[np.float64]  # (C,) what each predicted class adds


def predict_failure(signals: Signals, labelled: NDArray[np.int64], failure: NDArray[np.float64]) -> NDArray[np.float64]:
    """p of every example, (N,), from the failures (k,) of the ``labelled`` (k,)."""
    seen = signals.take(labelled)
    dispersion = _dispersion(failure)
    experts = distinct_experts(signals)
    fits = [_fit(expert, seen, failure, dispersion) for expert in experts]
    log_weight = np.array([np.log(expert.prior) + fit.evidence for expert, fit in zip(experts, fits, strict=True)])
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    average = np.zeros(signals.size)
    for share, fit in zip(weight, fits, strict=True):
        if share > 1e-6:
            average += share * _apply(fit, signals)
    return np.clip(average, _LOWEST, 1 - _LOWEST)


def distinct_experts(signals: Signals) -> list[Expert]:
    """The experts that differ on a pool with these signals; equal ones add their priors."""
    merged: dict[tuple[tuple[str, float], ...], Expert] = {}
    for expert in EXPERTS:
        scale = {kind: value for kind, value in expert.scale.items() if kind in signals.present}
        key = tuple(sorted(scale.items()))
        before = merged[key].prior if key in merged else 0.0
        merged[key] = Expert(before + expert.prior, scale)
    return list(merged.values())


def _fit(expert: Expert, seen: Signals, failure: NDArray[np.float64], dispersion: float) -> Fit:
    """Newton's method to the mode of the posterior, and Laplace's approximation of the evidence around it.

    log evidence = log p(f | β) + log p(β) - ½ log|H|, but for a constant that all experts share.
    """
    design, mean, scale = _design(expert, seen)
    beta = mean.copy()
    for _ in range(_STEPS if len(failure) else 0):
        gradient = design.T @ (failure - _logistic(design @ beta)) / dispersion - (beta - mean) / scale**2
        step = np.linalg.solve(_precision(design, beta, scale, dispersion), gradient)
        largest = float(np.abs(step).max())
        beta += step * min(1.0, _LARGEST_STEP / max(largest, _LARGEST_STEP))
        if largest < 1e-4:
            break
    logit = design @ beta
    likelihood = float(failure @ logit - np.logaddexp(0, logit).sum()) / dispersion
    prior = -0.5 * float((((beta - mean) / scale) ** 2).sum()) - float(np.log(scale).sum())
    volume = -0.5 * float(np.linalg.slogdet(_precision(design, beta, scale, dispersion))[1])
    return _unpack(expert, seen, beta, likelihood + prior + volume)


def _precision(
    design: NDArray[np.float64], beta: NDArray[np.float64], scale: NDArray[np.float64], dispersion: float
) -> NDArray[np.float64]:
    """H, the curvature of the posterior at β."""
    p = _logistic(design @ beta)
    return (design.T * np.maximum(p * (1 - p), 1e-6)) @ design / dispersion + np.diag(scale**-2)


def _design(expert: Expert, seen: Signals) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Design matrix (k, 1 + signals + classes seen) with prior mean and scale of the coefficients.

    A class that no label has seen keeps its prior mean 0, exactly, and needs no column.
    """
    used = [i for i, kind in enumerate(seen.kinds) if kind in expert.scale]
    columns = [np.ones((seen.size, 1)), seen.values[:, used]]
    with_confidence = "confidence" in expert.scale
    mean = [0.0 if with_confidence else seen.expected_logit]
    mean += [_SLOPE if seen.kinds[i] == "confidence" else 0.0 for i in used]
    scale = [_INTERCEPT_SCALE[with_confidence]] + [expert.scale[seen.kinds[i]] for i in used]
    if seen.classes is not None and "prediction" in expert.scale:
        names = np.unique(seen.classes)
        columns.append((seen.classes[:, None] == names).astype(np.float64))
        mean += [0.0] * len(names)
        scale += [expert.scale["prediction"]] * len(names)
    return np.hstack(columns), np.array(mean), np.array(scale)


def _unpack(expert: Expert, seen: Signals, beta: NDArray[np.float64], evidence: float) -> Fit:
    used = np.array([kind in expert.scale for kind in seen.kinds], dtype=bool)
    signal = np.zeros(len(used))
    num = int(used.sum())
    signal[used] = beta[1 : 1 + num]
    of_class = np.zeros(seen.num_classes)
    if seen.classes is not None and "prediction" in expert.scale:
        of_class[np.unique(seen.classes)] = beta[1 + num :]
    return Fit(evidence, float(beta[0]), signal, of_class)


def _apply(fit: Fit, signals: Signals) -> NDArray[np.float64]:
    logit = signals.values @ fit.signal + fit.intercept
    if signals.classes is not None:
        logit += fit.of_class[signals.classes]
    return _logistic(logit)


def _logistic(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(logit, -30, 30)))


def _dispersion(failure: NDArray[np.float64]) -> float:
    """Var(f) / (p(1 - p)): 1 for 0/1 outcomes, less for scores."""
    if np.isin(failure, (0.0, 1.0)).all():
        return 1.0
    mean = float(failure.mean())
    return float(np.clip(failure.var() / (mean * (1 - mean)), 0.01, 1.0))
