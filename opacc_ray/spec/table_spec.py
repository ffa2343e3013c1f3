"""One file of stored predictions, and the spec of its audit: made of its columns and of options, kept beside the run.

The file is CSV, JSON lines or Parquet, one example per row: columns by their usual names, classes from the predictions.
All problems of a file are reported in one error.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError, counted, meant, shortened, shown
from opacc_ray.lake.formats import place_of
from opacc_ray.lake.formats.features import LAST_SUFFIXES, read_file
from opacc_ray.lake.logical_schema import is_number
from opacc_ray.lake.parquet_io import pa, pc, to_numpy
from opacc_ray.lake.store_uris import Store, absolute, open_store, split
from opacc_ray.metrics.metric import ERRORS
from opacc_ray.pool import CROSSING, Pool
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.spec.audit_spec import Spec, load_spec, parse_spec
from opacc_ray.spec.validation import merged, parse_yaml

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
    "judges": ("judge", "judge_score", "judge_verdict", "llm_judge"),
}
"""Names that a column may have, by its key in ``pool.columns``; case and punctuation do not matter."""

SEVERAL = "judges", "answer"
"""Keys that may name several columns."""

ROUNDING = 1e-5
"""Amount by which a confidence that was rounded may exceed [0, 1]."""

MOST_CLASSES = 10_000
"""Different texts that predictions may hold before they count as something else than classes."""

FEWEST = 20
"""Rows from which a column is taken for probabilities of one class."""

_SHOWN = 4  # usual names in an error

_DIFFERENT = 0.9  # share of the rows from which different predictions are doubted to be classes

_REGRESSION = "give --task regression"


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
    uri: str,
    needs: Sequence[str] = (),
    *,
    columns: str | None = None,
    task: str | None = None,
) -> PredictionsTable:
    """Read a file of predictions; ``needs`` are features that are required in addition to the prediction.

    ``columns`` names columns, "id=sku,prediction=guess,judges=gpt,rules"; by default they are those with usual names.
    With the column of an ``answer``, which people grade, there is no prediction. The ``task`` says what predictions
    are: values of a "regression", or classes; None: classes, unless nearly every row has its own.

    Raises SpecError if ``columns`` is no such list; DataError if a column is missing or ambiguous, or holds a value
    that cannot be used; it lists all of these.
    """
    names, named = read_file(uri).column_names, named_columns(columns)
    graded = "answer" in named
    found, problems = _match(names, named, needs if graded else ["prediction", *needs])
    if graded:
        found.pop("prediction", None)
    if task == "regression":
        found.pop("confidence", None)
    if "id" not in found and "uri" in found:
        found = {"id": found["uri"]} | found
    used = {name for own in found.values() for name in ([own] if isinstance(own, str) else own)}
    table = read_file(uri, [found[key] for key in ("id", "uri") if key in found], [*used])
    values = _read_columns(table, found, task, problems)
    if problems:
        raise _refusal(uri, problems, names, found)
    (prediction, classes), confidence = values["prediction"], values["confidence"]
    positive = None if task == "regression" else _positive(prediction, classes, confidence)
    if positive is not None:  # in a spec, output is the probability of class 1
        found = {"output" if key == "confidence" else key: name for key, name in found.items()}
        confidence = np.where(prediction == positive, confidence, 1 - confidence)
    if positive == 0:
        prediction, classes = 1 - prediction, classes[::-1]
    unused = [name for name in names if name not in used]
    said = {name: table[name].to_pylist() for name in found.get("judges", ())}
    answers = np.zeros(len(table)) if graded else prediction
    pool = Pool(prediction=answers, confidence=confidence, classes=classes, judges=said)
    ending = [name for name in unused if name.lower().endswith("id")]
    distinct = [name for name in ending if len(table[name].unique()) == len(table)]
    return PredictionsTable(found, classes, pool, unused, distinct)


def _read_columns(table: Any, columns: Mapping[str, Any], task: str | None, problems: list[str]) -> dict[str, Any]:
    """Return the values of the columns, by their keys; add what is wrong to ``problems``."""
    values: dict[str, Any] = {"prediction": (None, None), "confidence": None}
    empty = _empty_rows(table)
    problems += _about_empty(empty) if len(table) else ["it has no row"]
    table = table.slice(0, empty[0]) if len(empty) else table  # what an empty row lacks was said; numbers of rows stay
    for key, read in (_READERS | ({"prediction": _values} if task == "regression" else {})).items():
        try:
            if key in columns and len(table):
                values[key] = read(table[columns[key]].combine_chunks(), columns[key])
        except DataError as error:
            problems.append(str(error))
    prediction, classes = values["prediction"]
    if task is None and prediction is not None and not problems:
        problems += _own_in_every_row(prediction, classes, columns["prediction"])
    return values


def _refusal(uri: str, problems: Sequence[str], names: Sequence[str], columns: Mapping[str, Any]) -> DataError:
    """Return the error of all problems of a file."""
    if "prediction" not in columns and any(re.fullmatch(r"[\d.,]+", name) for name in names):
        problems = [*problems, "the first row looks like data: start the file with the names of its columns"]
    listed = "; ".join(f"({number}) {text}" for number, text in enumerate(problems, start=1))
    several = listed if len(problems) > 1 else problems[0]
    return DataError(f"{uri}: {several}; its columns are {listed_names(names)}")


def names_in(text: str | None) -> list[str]:
    """Return the names in the text of an option, "a, b"."""
    return [name.strip() for name in text.split(",")] if text else []


def warn_without_confidence(table: PredictionsTable) -> None:
    """Log a warning if a file of predictions has no confidence and no judge."""
    if table.columns.keys().isdisjoint(("confidence", "output", "judges")):
        log.warning(
            "warning: no column of confidences, so labels are drawn nearly at random; unused columns: %s; "
            "recognised names: %s",
            listed_names(table.unused) or "none",
            ", ".join(USUAL_NAMES["confidence"]),
        )


def named_columns(text: str | None) -> dict[str, list[str]]:
    """Read "id=sku,judges=gpt,rules": the columns of each key; raises SpecError for anything else."""
    named: dict[str, list[str]] = {}
    key, keys = "", [*USUAL_NAMES, "answer"]
    for part in names_in(text):
        before, is_key, name = part.partition("=")
        key, name = (before.strip(), name.strip()) if is_key else (key, before)
        if key not in keys or not name or (not is_key and key not in SEVERAL):
            raise SpecError(f"--columns {text}: give KEY=COLUMN,KEY=COLUMN; keys are {', '.join(keys)}")
        named.setdefault(key, []).append(name)
    return named


def _match(
    names: Sequence[str], given: Mapping[str, Sequence[str]], needs: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the column of each key, those that are ``given`` first, and what is missing or ambiguous."""
    plain = {name: re.sub(r"\W+|_+", "_", name.strip().lower()).strip("_") for name in names}
    taken_names = [name for part in given.values() for name in part]
    problems = [f"no column {shown(name)}, which --columns names" for name in taken_names if name not in names]
    columns: dict[str, Any] = {
        key: part if key in SEVERAL else part[0] for key, part in given.items() if set(part) <= set(names)
    }
    for key, usual in USUAL_NAMES.items():
        if key in given:
            continue
        found = [name for name in names if plain[name] in usual and name not in taken_names]
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
            judged = "; or --columns answer=COLUMN if people judge answers" if key == "prediction" else ""
            problems.append(
                f"no column of {key}s, such as {', '.join(usual[:_SHOWN])}: give --columns {key}=COLUMN{judged}"
            )
    lacking = [name for name in needs if name not in USUAL_NAMES]
    if lacking:
        problems.append(f"the method needs {' and '.join(lacking)}: write a spec, or choose another method")
    return columns, problems


def _empty_rows(table: Any) -> NDArray[np.int64]:
    """Return the numbers of the rows, from 0, that are nulls alone, as spreadsheets leave them."""
    return np.flatnonzero(np.all([to_numpy(table[name].is_null()) for name in table.column_names], axis=0))


def _about_empty(rows: NDArray[np.int64]) -> list[str]:
    """Return a problem if there are empty rows."""
    more = f", and {counted(len(rows) - 1, 'other row')}: remove them" if len(rows) > 1 else ": remove it"
    return [f"row {rows[0] + 1} of the data is empty{more}"] if len(rows) else []


def _check_ids(column: Any, name: str) -> None:
    """Raise DataError if a column of ids has an empty one, or one twice."""
    ids = column.to_pylist()
    if empty := [row for row, id in enumerate(ids, 1) if id in (None, "")]:
        raise DataError(f"{counted(len(empty), 'row')} without an id ({name}), first row {empty[0]} of the data")
    if twice := [id for id, count in Counter(ids).items() if count > 1]:
        raise DataError(
            f"the column {name} of ids holds {counted(len(twice), 'id')} more than once, such as {shown(twice[0])}; "
            "make them unique, or name another column: --columns id=COLUMN"
        )


def _check_present(column: Any, name: str, key: str) -> None:
    """Raise DataError if a column has nulls."""
    if column.null_count:
        row = 1 + column.is_null().to_pylist().index(True)
        remedy = "or remove the column" if key == "confidence" else "or leave these rows out"
        if key == "prediction" and pa.types.is_string(column.type):
            remedy += "; put a class that is called null or nan in quotes"
        num = counted(column.null_count, "row")
        raise DataError(f"{num} without a {key} ({name}), first row {row} of the data: fill them, {remedy}")


def _predictions(column: Any, name: str) -> tuple[NDArray[np.int64], list[str] | None]:
    """Return the predicted classes (N,) as numbers, and their names; raises DataError for others."""
    _check_present(column, name, "prediction")
    if is_number(column.type):
        try:
            return class_numbers(to_numpy(column.cast(pa.float64())), name), None
        except DataError as error:
            raise DataError(f"{error}; if it is a predicted value, {_REGRESSION}") from None
    texts = column.cast(pa.string())
    classes = sorted(pc.unique(texts).to_pylist())
    if len(classes) > MOST_CLASSES:
        raise DataError(
            f"the column {name} of predictions holds {len(classes)} different texts, too many to be classes"
        )
    return to_numpy(pc.index_in(texts, pa.array(classes, pa.string()))).astype(np.int64), classes


def class_numbers(values: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return the numbers of classes in a column of predictions (k,); raises DataError for other numbers."""
    with np.errstate(invalid="ignore"):  # of NaN
        whole = values.astype(np.int64)
    unfit = np.flatnonzero((whole != values) | (whole < 0))
    if len(unfit):
        raise DataError(
            f"the prediction ({name!r}) holds {values[unfit[0]]:.10g}, which is not a class number, 0 or more"
        )
    return whole


def _own_in_every_row(codes: NDArray[np.int64], classes: list[str] | None, name: str) -> list[str]:
    """Return a problem if predictions differ in nearly every row: then they are values or texts rather than classes."""
    num, different = len(codes), len(np.unique(codes))
    if num < FEWEST or different <= _DIFFERENT * num:
        return []
    others = f"if they are values, {_REGRESSION}"
    if classes is not None:
        others = "name another column by --columns prediction=COLUMN, or answer=COLUMN if people judge answers"
    return [
        f"the column {name} of predictions holds {different:,} different ones in {num:,} rows; {others}; if they are "
        "classes, --task classification"
    ]


def _values(column: Any, name: str) -> tuple[NDArray[np.float64], None]:
    """Return the predicted values (N,) of a regression, which has no classes; raises DataError for others."""
    values = _numbers(column, name, "prediction")
    if len(unfit := values[~np.isfinite(values)]):
        raise DataError(f"the prediction ({name!r}) holds {unfit[0]:g}; give finite numbers, or leave these rows out")
    return values, None


def _numbers(column: Any, name: str, key: str) -> NDArray[np.float64]:
    _check_present(column, name, key)
    if not is_number(column.type):
        example = next((value for value in column.to_pylist() if not _is_numeric(value)), "")
        remedy = "write 0.93 for 93 %" if "%" in str(example) else "give numbers"
        raise DataError(f"the {key} ({name!r}) holds {shown(example)}, which is not a number; {remedy}")
    return to_numpy(column.cast(pa.float64()))


def _is_numeric(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def confidences(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Return a column of confidences (k,) in [0, 1], but for rounding; raises DataError for others."""
    unfit = values[~((values >= -ROUNDING) & (values <= 1 + ROUNDING))]
    if not len(unfit):
        return np.clip(values, 0, 1)
    remedy = "give a probability, or a score s as 1 / (1 + exp(-s))"
    if values.min() >= 0 and np.median(values) > 1 and 10 < values.max() <= 100:  # percentages
        remedy = "divide a percentage by 100"
    raise DataError(f"the confidence ({name!r}) holds {unfit[0]:g}, outside [0, 1]; {remedy}")


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "id": _check_ids,
    "prediction": _predictions,
    "confidence": lambda column, name: confidences(_numbers(column, name, "confidence"), name),
}
"""By key, function of a column and its name: returns its values, or raises DataError."""


def _positive(
    prediction: NDArray[np.int64] | None, classes: list[str] | None, confidence: NDArray[np.float64] | None
) -> int | None:
    """Return the class whose probability a column holds, whatever is predicted; None if it holds the confidence.

    Of two classes, the predicted one has a probability of at least 1/2, unless another threshold is in use. So values
    below it, which are those of one class alone and all below those of the other, are probabilities of the other. A
    class 0 without a name cannot be the last one, which ``model.output: probability`` is about.
    """
    if prediction is None or confidence is None or len(prediction) < FEWEST or confidence.min() >= 0.5:
        return None
    if set(np.unique(prediction)) != {0, 1}:
        return None
    of_0, of_1 = confidence[prediction == 0], confidence[prediction == 1]
    if of_0.max() <= of_1.min():
        return 1
    return 0 if classes and of_1.max() <= of_0.min() else None


def listed_names(names: Sequence[str]) -> str:
    return shortened(", ".join(map(str, names)), 200)


# -- the spec --------------------------------------------------------------------------------------------------

OUTPUT = "audits"
"""Folder of runs and specs, unless one is given."""


class TableKeys(NamedTuple):
    """What an audit of a file of predictions has in place of a spec; None: the default, see `opacc run --help`."""

    budget: int | None = None  # number of labels
    method: str | None = None
    columns: str | None = None  # those without a usual name, "id=sku,prediction=guess,judges=a,b"; answer=reply: graded
    task: str | None = None  # "classification" or "regression"
    show: str | None = None  # columns that annotators see, "subject,text"
    slices: str | None = None  # columns and crossings, "camera,region,camera*region"
    output: str | None = None  # folder of the run
    name: str | None = None


def load_spec_or_table(uri: str, keys: TableKeys | None = None) -> Spec:
    """Return the spec in a YAML file, or that of an audit of a file of predictions; writes nothing.

    The budget of a file of predictions that has a run is the one of that run. Raises SpecError if a key is given for a
    YAML file, or there is no budget.
    """
    keys = keys or TableKeys()
    if not is_table(uri):
        spec = load_spec(uri)
        if extra := next((name for name, value in keys._asdict().items() if value is not None), None):
            raise SpecError(f"--{extra} is only for a file of predictions; set it in the spec {uri} instead")
        return spec
    budget = kept_budget(uri, keys.output, keys.name) if keys.budget is None else keys.budget
    if budget is None:
        raise SpecError(
            f"--budget is missing: the number of labels; `opacc budget {uri} --until ±0.03` shows how many are needed"
        )
    return spec_of_predictions(uri, keys._replace(budget=budget))


def spec_of_predictions(uri: str, keys: TableKeys) -> Spec:
    """Return the spec of an audit of a file of predictions, and log how its columns were read; raises DataError.

    A regression states mae, rmse and bias; its score has the spread of the predictions as the error scale.
    """
    columns, task, method = keys.columns, keys.task, keys.method or "neyman"
    named = named_columns(columns)
    if task is not None and "answer" in named:
        raise SpecError(f"--task {task} is about predictions, and an answer is a text that people grade; remove one")
    parameters = parse_parameters(method, {})
    needs = find_method(method).needs(parameters)
    table = read_predictions(uri, needs, columns=columns, task=task)
    if "judges" not in named and not parameters.learns_from_history:
        table.columns.pop("judges", None)
    content: dict[str, Any] = {
        "name": keys.name or _name_of(uri),
        "pool": {"uri": absolute(uri), "format": "features", "columns": table.columns},
        "sample": {"method": method, "budget": keys.budget},
        "output": absolute(keys.output or OUTPUT),
    }
    if keys.slices is not None:
        content["pool"]["slices"] = [
            item.split(CROSSING) if CROSSING in item else item for item in names_in(keys.slices)
        ]
    if "answer" in named:
        content["model"] = {"task": "grade"} | ({"grades": "preference"} if len(named["answer"]) > 1 else {})
    if keys.show is not None:
        content["manifest"] = {"show": names_in(keys.show)}
    if table.classes is not None:
        content["model"] = {"classes": table.classes}
    if task == "regression":
        scale = float(f"{np.std(np.asarray(table.pool.prediction)):.2g}") or 1.0
        content |= {"model": {"task": task}, "score": {"error_scale": scale}, "metrics": list(ERRORS)}
    if "output" in table.columns:
        content.setdefault("model", {})["output"] = "probability"
    used = {name for text in (keys.show, (keys.slices or "").replace(CROSSING, ",")) for name in names_in(text)}
    _tell(uri, table._replace(unused=[name for name in table.unused if name not in used]), content)
    return parse_spec(content, uri)


def spec_of_other_model(uri: str, spec: Spec) -> Spec:
    """Return the spec of a file with another model's predictions for the pool of a spec; raises DataError.

    Its columns have the names of the spec or usual ones. It has the task and the classes of the spec.
    """
    model, named = spec.model, read_file(uri).column_names
    if not (model.has_classes or model.task == "regression"):
        raise SpecError(f"{uri}: a file is compared by its predictions, and the task is {model.task}; give a run")
    own = {key: getattr(spec.pool.columns, key) for key in ("id", "prediction", "confidence")}
    columns = ",".join(f"{key}={name}" for key, name in own.items() if isinstance(name, str) and name in named)
    other = spec_of_predictions(uri, TableKeys(1, "srs", columns or None, model.task, output=spec.output))
    if other.pool.columns.id is None:
        raise DataError(
            f"{uri} has no column of ids, by which its examples are found; its columns are {listed_names(named)}"
        )
    content, classes = _content(other) | {"score": spec.score.model_dump()}, other.model.classes
    if (classes is None) != (model.classes is None):
        kinds = ("names", "numbers") if model.classes is None else ("numbers", "names")
        raise DataError(f"{uri} predicts {kinds[0]} of classes, and the run {kinds[1]}; write {kinds[1]}")
    if classes is not None and model.classes is not None:
        if strange := next((name for name in classes if name not in model.classes), None):
            raise DataError(
                f"{uri} predicts {strange!r}, which is no class of the run; {meant(strange, model.classes)}"
            )
        if len(classes) < len(model.classes):  # if all are there, 1 is that of a probability
            content["model"] |= {"classes": model.classes}
    return parse_spec(content, uri)


def _tell(uri: str, table: PredictionsTable, content: Mapping[str, Any]) -> None:
    """Log how the columns of a file were read."""
    shown_columns = {"shown": content["manifest"]["show"]} if "manifest" in content else {}
    own = content["pool"]["columns"] | shown_columns
    read = (f"{key} = {name if isinstance(name, str) else ' and '.join(name)}" for key, name in own.items())
    log.info("columns: %s", ", ".join(read))
    if table.classes is not None:
        log.info("classes: %s (the predictions, sorted)", listed_names(sorted(table.classes)))
    if "score" in content:
        scale = f"{content['score']['error_scale']:g}"
        log.info("score: max(0, 1 - (error / %s)²), %s being the spread of the predictions", scale, scale)
    elif "confidence" in parse_parameters(content["sample"]["method"], {}).optional_features:
        warn_without_confidence(table)
    if "output" in table.columns:
        positive = table.classes[1] if table.classes else "1"
        log.info("%s is the probability of %s, whatever is predicted", table.columns["output"], shown(positive))
    if "id" not in table.columns:
        remedy = f"; for those of {table.distinct[0]}, give --columns id={table.distinct[0]}" if table.distinct else ""
        log.info("ids: the file has no column of ids, so they are %s#0, %s#1, ...%s", *[split(uri)[1]] * 2, remedy)


def _name_of(uri: str) -> str:
    """Return the name of the audit of a file: that of the file, in plain characters."""
    stem = split(uri)[1].rpartition(".")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("._-")[:100] or "answers"


def kept_budget(uri: str, output: str | None, name: str | None) -> int | None:
    """Return the budget in the spec that was written for a file of predictions, if it has a run.

    Raises SpecError if that spec is of another file.
    """
    store, name = open_store(output or OUTPUT), name or _name_of(uri)
    there = store.read_if_there(f"{name}.yaml")
    if there is None or not _runs(store, name):
        return None
    place = store.uri_of(f"{name}.yaml")
    kept = parse_spec(parse_yaml(there.decode(), place), place)
    _refuse_other_file(place, kept, absolute(uri))
    return kept.sample.budget


def _refuse_other_file(place: str, kept: Spec, uri: str) -> None:
    if kept.pool.uri != uri:
        raise SpecError(f"{place} reads {kept.pool.uri}, not {uri}; give this file another name with --name")


def kept_spec(spec: Spec) -> Spec:
    """Write a spec as YAML to its output, under its name, and return it.

    Another spec of that name is replaced if it has no run. If it has one, what the new spec says is added to it, such
    as slices and shown columns; raises SpecError if that would change what is drawn.
    """
    store, key = open_store(spec.output), f"{spec.name}.yaml"
    uri, there = store.uri_of(key), store.read_if_there(key)
    runs = _runs(store, spec.name) if there is not None else []
    if there is not None and runs:
        before = parse_spec(parse_yaml(there.decode(), uri), uri)
        _refuse_other_file(uri, before, spec.pool.uri)
        spec = parse_spec(merged(_content(before), _content(spec)), uri)
        if spec.identity() != before.identity():
            values, others = _by_key(before.identity()), _by_key(spec.identity())
            differing = sorted(key for key in values | others if values.get(key) != others.get(key))
            changes = [f"{key}={values.get(key, 'none')}, now {others.get(key, 'none')}" for key in differing]
            texts = shortened("; ".join(changes), 200)
            run = quote(store.uri_of(runs[-1]).removeprefix("file://"))
            raise SpecError(
                f"{uri} is another spec of this name: it has {texts}; `opacc next {run} --budget N` draws N more, and "
                f"`opacc run --like {run} --budget N` N others; or choose another name with --name"
            )
    text = as_yaml(spec).encode()
    if there != text:
        store.write(key, text)
    log.info("spec: %s", uri)
    return spec


def _by_key(content: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of nested keys by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= _by_key(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def _runs(store: Store, name: str) -> list[str]:
    """Return the names of the runs of an audit in an output."""
    form = re.compile(rf"{re.escape(name)}-[0-9a-f]{{8}}(?=/)")
    return sorted({found[0] for entry in store.list(f"{name}-") if (found := form.match(entry.key))})


def as_yaml(spec: Spec) -> str:
    """Return a spec as YAML, without keys that it does not set."""
    return yaml.safe_dump(_content(spec), sort_keys=False, allow_unicode=True)


def _content(spec: Spec) -> dict[str, Any]:
    return spec.model_dump(mode="json", exclude_unset=True)
