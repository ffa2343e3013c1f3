"""What a model's confidence says of its accuracy without any label of the pool: three guesses, none with an interval.

    average confidence            mean c
    difference of confidences     accuracy of the reference + mean c - mean c of the reference
    average thresholded           share of the pool with c >= t,  t such that of the reference as many are below as fail

Sources: D. Guillory, V. Shankar, S. Ebrahimi, T. Darrell, L. Schmidt, "Predicting with Confidence on Unseen
Distributions", ICCV 2021; S. Garg, S. Balakrishnan, Z. C. Lipton, B. Neyshabur, H. Sedghi, "Leveraging Unlabeled Data
to Predict Out-of-Distribution Performance", ICLR 2022. The last two need a labelled reference, such as the model's test
set. All rest on the confidence meaning the same here as there; where it does not, nothing in them tells. Labels do.

Legend: c confidence, the largest softmax value.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def average_confidence(confidence: Array) -> float:
    """Mean of the confidence (N,)."""
    return float(np.mean(confidence))


def difference_of_confidences(confidence: Array, reference: Array, outcome: Array) -> float:
    """Accuracy of the reference, whose confidence and outcome are (k,), moved by how much the confidence differs."""
    return float(np.mean(outcome) + np.mean(confidence) - np.mean(reference))


def average_thresholded_confidence(confidence: Array, reference: Array, outcome: Array) -> float:
    """Share of the pool's confidence (N,) that is not below the threshold of the reference (k,)."""
    failures = round(float(len(outcome) - np.sum(outcome)))
    threshold = np.sort(reference)[failures] if failures < len(reference) else np.inf
    return float(np.mean(confidence >= threshold))


def guesses(confidence: Array, reference: Array | None = None, outcome: Array | None = None) -> dict[str, float]:
    """Accuracy by each name that can be told: all three with a labelled reference, the first alone without."""
    found = {"average confidence": average_confidence(confidence)}
    if reference is not None and outcome is not None:
        found["difference of confidences"] = difference_of_confidences(confidence, reference, outcome)
        found["average thresholded confidence"] = average_thresholded_confidence(confidence, reference, outcome)
    return found
