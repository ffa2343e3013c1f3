"""The constants of all intervals and estimates, each with its reason.

Those of the failure model and of the draw are in ``samplers/neyman``; ``docs/design/estimation.md`` has the ablations.
"""

from opacc_ray.samplers import plausibility

PRIOR_LABELS = 20
"""k of a variance: labels that the predicted variance counts for, where the labels agree with the predictions."""

LEAST_SHARE = 0.5
"""Least variance, in multiples of the predicted one: a prediction may widen an interval without being confirmed."""

MOST_NARROWED, NARROWED_BESIDE, MUCH_NARROWED = 10, 6, 2.5
"""Factor by which predictions may narrow what is unseen where they predict no event: the largest one, the largest one
of failures where the draw served metrics of a class alone, and from which on the estimate says so."""

SURPRISE = 0.01
"""Probability of as many events in a part, if predictions are right, below which its estimate says so."""

AGREEMENT_LIMIT, FIT_LIMIT = plausibility.AGREEMENT_LIMIT, 0.5
"""Squared distance of the events among labels from their predicted number, in variances, at which the agreement is 0:
in a part of the pool, and over all labels, which the fit brings near to it."""

PRIOR_ALONE = 1
"""Labels that the prediction counts for in the value of a part whose labels contradict it."""

MOST_MOVED = 0.5
"""Largest share of the way to the predictions by which a total is moved: half a standard error at most."""

UNTRUSTED, TRUSTED = 12, 32
"""Numbers of labels at which the trust in fitted predictions is 0 and 1: of fewer, chance decides what is predicted."""

FEW_PREDICTED = 3
"""Failures predicted among the labels below which an interval says that it depends on where they are predicted."""

PRIOR_FAILURES = 5.0
"""Labels of failures that equal shares of the true classes count for."""

COMMON_LABELS = 10
"""Labels that what is common to all classes counts for in the mean of a metric over them: in the failures of a class,
in a slice, and before each class speaks for itself."""

ABSENT = 3
"""Examples of a slice that would be predicted as a class, at its share of the pool, from which on none means that the
class is not there: by chance that is so in 5 %."""

EXPONENTS = tuple(k / 2 for k in range(-3, 4))
"""By which power of their size classes may be missed."""

DIFFERENCE = 0.2
"""τ², by how much classes of one size differ in how often they are missed, relative to its square."""

AVERAGED = 24
"""Quantiles of what is missed of a class that an average is the mean over."""

LEVELS, POINTS = 48, 192
"""Quantiles of a total that are computed, and by which its distribution is represented: of fewer, one would stand for
2 % of it."""

MUCH_NARROWER = 1.5
"""How much narrower an interval that trusts the predictions is before it is stated too."""

LEAST_OPINIONS = 10
"""Examples with two opinions from which on the interval is widened."""

BY_CHANCE = 0.1
"""Largest value of Krippendorff's alpha that counts as agreement by chance."""

LEAST_DEVIANT = 3
"""Effective number of outcomes in their variance from which on an effective sample size is reported."""

INTERIM_SHARE = 0.95
"""Share of α that an interim analysis uses; the rest is reserved for stops that depend on luck."""

LEAST_ROUND, LEAST_GROWTH = 10, 1.1
"""Least labels of a round, and least factor by which it multiplies the labels so far."""

LEARNING_SHARE, LEARNING_GROWTH = 0.6, (1.3, 3.0)
"""Share of the forecast that a round other than the last aims at; least and largest multiple of the labels."""

CLOSE, MARGIN = 1.8, 0.05
"""The last round follows if the forecast is below this multiple of the labels so far, with this margin."""

ROOT_LAW, USUAL_RATE, PRIOR_WEIGHT, RATES = 0.5, 0.6, 0.6, (0.3, 1.2)
"""β of simple random samples, β₀ with many failures, λ, and the least and largest β: few rounds may say anything."""

GAMBLERS = 24
"""Shares of the capital that are bet at once: more hardly narrow a confidence sequence."""

SENSIBLE_SHARE, SENSIBLE_PRICE = 0.5, 1.5
"""Share of the pool, and multiple of a simple random sample, above which a goal causes advice."""

DRAWS = 20_000
"""Draws from the distribution of the estimates, for the probability of being best."""

NOISES = 20_000
"""Draws of the noise of a calibration error."""

UNCERTAIN = 0.15
"""Relative standard error of a denominator from which on a ratio that may exceed 1 says so; 30 images covered in 76 %
then."""

LEAST_LEFT = 0.5
"""Least number of examples that a round is assumed to leave unlabelled: keeps its weight finite."""

MOST_EXPONENT = 5.0
"""Largest t·√v(x̂)/x̂ that an upper end of mae and rmse is computed from."""

MID_P = 0.5
"""Probability of a further, unseen failure for an end that is mid-P."""

SMALLEST = 1e-300
"""Instead of 0 in a denominator."""
