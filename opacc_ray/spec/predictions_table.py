"""One file of stored predictions: columns by their usual names, classes from the predictions.

The file is CSV, JSON lines or Parquet, one example per row. All problems of a file are reported in one error.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError, counted, shortened, shown
from opacc_ray.lake.formats import place_of
from opacc_ray.lake.formats.features import LAST_SUFFIXES, read_file
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.pool import Pool

log = logging.getLogger(__name__)

USUAL_NAMES = {
    "id": ("id", "key", "image_id", "example_id", "sample_id", "item_id", "row_id", "uid", "uuid", "name"),
    "uri": ("uri", "url", "path", "file", "filename", "image", "image_uri", "image_url", "image_path", "file_path"),
    "prediction": (
        *("prediction", "predicted", "pred", "predicted_label", "predicted_class", "prediction_label"),
        *("label_pred", "class_pred", "pred_label", "pred_class", "y_pred", "y_hat"),
    ),
    "confidence": (
        *("confidence", "conf", "score", "probability", "prob", "proba", "max_prob", "max_probability"),
        *("pred_prob", "pred_score", "prediction_score", "prediction_probability", "certainty"),
    ),
    "prior": ("prior",),
    "judges": ("judge", "judge_score", "judge_verdict", "llm_judge"),
}
"""Names that a column may have, by its key in ``pool.columns``; case and punctuation do not matter."""

ROUNDING = 1e-5
"""Amount by which a confidence that was rounded may exceed [0, 1]."""

MOST_CLASSES = 10_000
"""Different texts that predictions may hold before they count as something else than classes."""

FEWEST = 20
"""Rows from which a column is taken for probabilities of one class."""

_SHOWN = 4  # usual names in an error


class PredictionsTable(NamedTuple):
    """The columns of a file of predictions."""

    columns: dict[str, Any]  # name of the column, by its key in pool.columns; several of judges
    classes: list[str] | None  # sorted, but the one that ``output`` is the probability of last; None: numbers
    pool: Pool  # with prediction and, if the file has it, confidence
    unused: list[str]  # columns of the file that no key names
    distinct: list[str]  # those of them whose name ends in "id" and that have another value in every row


def is_table(uri: str) -> bool:
    """Return whether a URI is that of a file of predictions, and not of a spec or a run."""
    return place_of("features", uri)[1] is not None and not uri.lower().endswith(LAST_SUFFIXES)


def read_predictions(
    uri: str, needs: Sequence[str] = (), *, graded: bool = False, judges: str | None = None, columns: str | None = None
) -> PredictionsTable:
    """Read a file of predictions; ``needs`` are features that are required in addition to the prediction.

    If answers are ``graded``, there is no prediction. ``judges`` names columns of judges, and ``columns`` some of the
    others, "id=sku,prediction=guess"; by default they are those with usual names.

    Raises SpecError if ``columns`` is no such list; DataError if a column is missing or ambiguous, or holds a value
    that cannot be used; it lists all of these.
    """
    names = read_file(uri).column_names
    found, problems = _match(names, _named(columns), needs if graded else ["prediction", *needs])
    if judges is not None:
        found["judges"] = names_in(judges)
        problems += [f"no column {name!r}, which --judges names" for name in found["judges"] if name not in names]
    if graded:
        found.pop("prediction", None)
    if "id" not in found and "uri" in found:
        found = {"id": found["uri"]} | found
    table = read_file(uri, text_columns=[found[key] for key in ("id", "uri") if key in found])
    problems += _bad_ids(table, found)
    prediction, classes = _predictions(table, found, problems)
    confidence = _confidences(table, found, problems)
    if not problems and prediction is not None and confidence is not None:
        found, prediction, classes, confidence = _with_output(_Columns(found, prediction, classes, confidence))
    if not len(table):
        problems = ["it has no row"]
    if problems:
        if "prediction" not in found and any(re.fullmatch(r"[\d.,]+", name) for name in names):
            problems.append("the first row looks like data: start the file with the names of its columns")
        listed = "; ".join(f"({number}) {text}" for number, text in enumerate(problems, start=1))
        raise DataError(f"{uri}: {listed if len(problems) > 1 else problems[0]}; its columns are {listed_names(names)}")
    used = {name for own in found.values() for name in ([own] if isinstance(own, str) else own)}
    unused = [name for name in names if name not in used]
    answers = np.zeros(len(table)) if graded else prediction
    said = {name: table[name].to_pylist() for name in found.get("judges", ())}
    pool = Pool(prediction=answers, confidence=confidence, classes=classes, judges=said)
    ending = [name for name in unused if name.lower().endswith("id")]
    distinct = [name for name in ending if len(table[name].unique()) == len(table)]
    return PredictionsTable(found, classes, pool, unused, distinct)


def names_in(text: str | None) -> list[str]:
    """Return the names in the text of an option, "a, b"."""
    return [name.strip() for name in text.split(",")] if text else []


def warn_without_confidence(table: PredictionsTable) -> None:
    """Log a warning if a file of predictions has no confidence, no prior and no judge."""
    if table.columns.keys().isdisjoint(("confidence", "output", "prior", "judges")):
        log.warning(
            "warning: no column of confidences, so labels are drawn nearly at random; unused columns: %s; "
            "recognised names: %s",
            listed_names(table.unused) or "none",
            ", ".join(USUAL_NAMES["confidence"]),
        )


def _named(columns: str | None) -> dict[str, str]:
    """Read "id=sku,prediction=guess": names of columns by their keys."""
    parts = [text.partition("=") for text in columns.split(",")] if columns else []
    keys = [key for key in USUAL_NAMES if key != "judges"]
    for key, _, name in parts:
        if key.strip() not in keys or not name.strip():
            raise SpecError(f"--columns {columns}: give KEY=COLUMN,KEY=COLUMN; keys are {', '.join(keys)}")
    return {key.strip(): name.strip() for key, _, name in parts}


def _match(names: Sequence[str], given: Mapping[str, str], needs: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the column of each key, those that are ``given`` first, and what is missing or ambiguous."""
    plain = {name: re.sub(r"\W+|_+", "_", name.strip().lower()).strip("_") for name in names}
    problems = [f"no column {shown(name)}, which --columns names" for name in given.values() if name not in names]
    columns: dict[str, Any] = {key: name for key, name in given.items() if name in names}
    for key, usual in USUAL_NAMES.items():
        if key in given:
            continue
        found = [name for name in names if plain[name] in usual and name not in given.values()]
        exact = [name for name in found if plain[name] == key]
        if key == "judges" and found:
            columns[key] = found
        elif len(exact or found) == 1:
            columns[key] = (exact or found)[0]
        elif key == "uri" and found:
            columns[key] = found[0]
        elif found:
            problems.append(f"the columns {listed_names(found)} may all be the {key}; give --columns {key}={found[0]}")
        elif key in needs:
            judged = "; or --answer COLUMN if people judge answers" if key == "prediction" else ""
            problems.append(
                f"no column of {key}s, such as {', '.join(usual[:_SHOWN])}: give --columns {key}=COLUMN{judged}"
            )
    lacking = [name for name in needs if name not in USUAL_NAMES]
    if lacking:
        problems.append(f"the method needs {' and '.join(lacking)}: write a spec, or choose another method")
    return columns, problems


def _bad_ids(table: Any, columns: Mapping[str, str]) -> list[str]:
    if "id" not in columns:
        return []
    counts = Counter(table[columns["id"]].to_pylist())
    empty = counts.pop(None, 0) + counts.pop("", 0)
    twice = [name for name, count in counts.items() if count > 1]
    problems = [f"{counted(empty, 'row')} without an id ({columns['id']})"] if empty else []
    if twice:
        count = "several ids" if len(twice) > 1 else "an id"
        place = f"the column {columns['id']} of ids holds {count} more than once, such as {shown(twice[0])}"
        problems.append(f"{place}; make them unique, or name another column: --columns id=COLUMN")
    return problems


def _column(table: Any, columns: Mapping[str, str], key: str, problems: list[str]) -> Any:
    """Return the values of a column that are there; None without the column. Add missing values to ``problems``."""
    if key not in columns:
        return None
    column = table[columns[key]].combine_chunks()
    if column.null_count:
        row = 1 + column.is_null().to_pylist().index(True)
        remedy = "or remove the column" if key == "confidence" else "or leave these rows out"
        num = counted(column.null_count, "row")
        problems.append(f"{num} without a {key} ({columns[key]}), first row {row} of the data: fill them, {remedy}")
    return column.drop_null()


def _predictions(
    table: Any, columns: Mapping[str, str], problems: list[str]
) -> tuple[NDArray[np.int64] | None, list[str] | None]:
    """Return the predicted classes (N,) as numbers, and their names; add what is wrong to ``problems``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _column(table, columns, "prediction", problems)
    if column is None:
        return None, None
    place = f"the column {columns['prediction']} of predictions holds"
    if pa.types.is_integer(column.type):
        values = to_numpy(column).astype(np.int64)
        if len(values) and values.min() < 0:
            problems.append(f"{place} {values.min()}, and numbers of classes start at 0")
        return values, None
    if pa.types.is_floating(column.type):
        numbers = to_numpy(column)
        other = numbers[numbers != np.floor(numbers)]
        if len(other):
            remedy = "for a regression, write a spec with model.task: regression"
            problems.append(f"{place} {other[0]:g}, which is not a class; {remedy}")
        return np.nan_to_num(numbers).astype(np.int64), None
    texts = column.cast(pa.string())
    classes = sorted(pc.unique(texts).to_pylist())
    if len(classes) > MOST_CLASSES:
        problems.append(f"{place} {len(classes)} different texts, too many to be classes")
    return to_numpy(pc.index_in(texts, pa.array(classes, pa.string()))).astype(np.int64), classes


def _confidences(table: Any, columns: Mapping[str, str], problems: list[str]) -> NDArray[np.float64] | None:
    """Return the confidences (N,), if there are any; add what is wrong to ``problems``."""
    import pyarrow as pa

    column = _column(table, columns, "confidence", problems)
    if column is None:
        return None
    place = f"the column {columns['confidence']} of confidences holds"
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        example = column[0].as_py() if len(column) else ""
        remedy = "write 0.93 for 93 %" if "%" in str(example) else "give a number from 0 to 1"
        problems.append(f"{place} {shown(example)}, which is not a number; {remedy}")
        return None
    values = to_numpy(column).astype(np.float64)
    unfit = values[~((values >= -ROUNDING) & (values <= 1 + ROUNDING))]
    if len(unfit):
        problems.append(f"{place} {unfit[0]:g}, outside [0, 1]; {remedy_for(values)}")
    return np.clip(values, 0, 1)


class _Columns(NamedTuple):
    """What a file of predictions holds."""

    names: dict[str, Any]  # by key
    prediction: NDArray[np.int64]  # (N,)
    classes: list[str] | None
    confidence: NDArray[np.float64]  # (N,)


def _with_output(given: _Columns) -> _Columns:
    """Return the columns with ``output`` in place of ``confidence`` if it holds the probability of one class.

    That is ``model.output: probability`` in a spec, where it is the probability of class 1.
    """
    positive = _positive(given.prediction, given.confidence)
    if positive is None or (not given.classes and positive == 0):
        return given
    names = {key if key != "confidence" else "output": name for key, name in given.names.items()}
    confidence = np.where(given.prediction == positive, given.confidence, 1 - given.confidence)
    if given.classes and positive == 0:
        return _Columns(names, 1 - given.prediction, given.classes[::-1], confidence)
    return _Columns(names, given.prediction, given.classes, confidence)


def _positive(prediction: NDArray[np.int64], confidence: NDArray[np.float64]) -> int | None:
    """Return the class whose probability a column holds, whatever is predicted; None if it holds the confidence.

    Of two classes, the predicted one has a probability of at least 1/2, unless another threshold is in use. So values
    below it, which are those of one class alone and all below those of the other, are probabilities of the other.
    """
    if len(prediction) < FEWEST or set(np.unique(prediction)) != {0, 1} or confidence.min() >= 0.5:
        return None
    of_0, of_1 = confidence[prediction == 0], confidence[prediction == 1]
    return 1 if of_0.max() <= of_1.min() else 0 if of_1.max() <= of_0.min() else None


def remedy_for(confidence: NDArray[np.float64]) -> str:
    """Return what to do about a confidence outside [0, 1]: percentages are over 1 as a rule, and reach over 10."""
    if confidence.min() >= 0 and np.median(confidence) > 1 and 10 < confidence.max() <= 100:
        return "divide a percentage by 100"
    return "give a probability, or a score s as 1 / (1 + exp(-s))"


def listed_names(names: Sequence[str]) -> str:
    return shortened(", ".join(map(str, names)), 200)
