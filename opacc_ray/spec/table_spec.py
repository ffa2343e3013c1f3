"""The spec of an audit of one file of predictions: made of its columns and of options, and kept beside the run."""

import logging
import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import yaml

from opacc_ray.errors import DataError, SpecError, meant, shortened, shown
from opacc_ray.lake.formats.features import read_file
from opacc_ray.lake.store_uris import Store, absolute, open_store, split
from opacc_ray.metrics.metric import ERRORS
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.slices import CROSSING
from opacc_ray.spec.audit_spec import Spec, load_spec, parse_spec
from opacc_ray.spec.predictions_table import (
    PredictionsTable,
    is_table,
    listed_names,
    named_columns,
    names_in,
    read_predictions,
    warn_without_confidence,
)
from opacc_ray.spec.validation import parse_yaml

log = logging.getLogger(__name__)

OUTPUT = "audits"
"""Folder of runs and specs, unless one is given."""


class TableKeys(NamedTuple):
    """What an audit of a file of predictions has in place of a spec; None: the default, see `opacc run --help`."""

    budget: int | None = None  # number of labels
    method: str | None = None
    columns: str | None = None  # "id=sku,prediction=guess,answer=reply,judges=a,b"
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
    given = {name: value for name, value in (keys or TableKeys())._asdict().items() if value is not None}
    if is_table(uri):
        if "budget" not in given:
            given["budget"] = kept_budget(uri, given.get("output"), given.get("name"))
        if given["budget"] is None:
            raise SpecError(
                f"--budget is missing: the number of labels; `opacc budget {uri} --until ±0.03` shows how many are "
                "needed"
            )
        return spec_of_predictions(uri, **given)
    spec = load_spec(uri)
    if given:
        raise SpecError(f"--{next(iter(given))} is only for a file of predictions; set it in the spec {uri} instead")
    return spec


def spec_of_predictions(
    uri: str,
    *,
    budget: int,
    method: str = "neyman",
    output: str = OUTPUT,
    name: str | None = None,
    slices: str | None = None,
    show: str | None = None,
    columns: str | None = None,
    task: str | None = None,
) -> Spec:
    """Return the spec of an audit of a file of predictions, and log how its columns were read; raises DataError.

    ``slices`` are columns, or crossings of them: "camera,region,camera*region". ``show`` are columns for annotators.
    ``columns`` names those without a usual name, "id=sku,prediction=guess", those of judges, "judges=gpt,rules", and
    the answer that annotators grade, "answer=reply"; of two answers, they say which they prefer. A regression states
    mae, rmse and bias; its score has the spread of the predictions as the error scale.
    """
    named = named_columns(columns)
    if task is not None and "answer" in named:
        raise SpecError(f"--task {task} is about predictions, and an answer is a text that people grade; remove one")
    parameters = parse_parameters(method, {})
    needs = find_method(method).needs(parameters)
    table = read_predictions(uri, needs, columns=columns, task=task)
    if "judges" not in named and not parameters.learns_from_history:
        table.columns.pop("judges", None)
    content: dict[str, Any] = {
        "name": name or _name_of(uri),
        "pool": {"uri": absolute(uri), "format": "features", "columns": table.columns},
        "sample": {"method": method, "budget": budget},
        "output": absolute(output),
    }
    if slices is not None:
        content["pool"]["slices"] = _slices(slices)
    if "answer" in named:
        content["model"] = {"task": "grade"} | ({"grades": "preference"} if len(named["answer"]) > 1 else {})
    if show is not None:
        content["manifest"] = {"show": names_in(show)}
    if table.classes is not None:
        content["model"] = {"classes": table.classes}
    if task == "regression":
        scale = float(f"{np.std(np.asarray(table.pool.prediction)):.2g}") or 1.0
        content |= {"model": {"task": task}, "score": {"error_scale": scale}, "metrics": list(ERRORS)}
    if "output" in table.columns:
        content.setdefault("model", {})["output"] = "probability"
    used = {name for text in (show, (slices or "").replace(CROSSING, ",")) for name in names_in(text)}
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
    table = read_predictions(uri, columns=columns or None, task=model.task)
    if "id" not in table.columns:
        raise DataError(
            f"{uri} has no column of ids, by which its examples are found; its columns are {listed_names(named)}"
        )
    if (table.classes is None) != (model.classes is None):
        kinds = ("names", "numbers") if model.classes is None else ("numbers", "names")
        raise DataError(f"{uri} predicts {kinds[0]} of classes, and the run {kinds[1]}; write {kinds[1]}")
    classes = model.classes
    if table.classes is not None and classes is not None:
        if strange := next((name for name in table.classes if name not in classes), None):
            raise DataError(f"{uri} predicts {strange!r}, which is no class of the run; {meant(strange, classes)}")
        classes = table.classes if len(table.classes) == len(classes) else classes  # 1 is that of a probability
    own_model = model.model_dump(include={"task"}, exclude_unset=True)
    own_model |= {} if classes is None else {"classes": classes}
    own_model |= {"output": "probability"} if "output" in table.columns else {}
    table.columns.pop("judges", None)
    pool = {"uri": absolute(uri), "format": "features", "columns": table.columns}
    content = {"name": _name_of(uri), "pool": pool, "model": own_model, "sample": {"method": "srs", "budget": 1}}
    return parse_spec(content | {"score": spec.score.model_dump(), "output": spec.output}, uri)


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


def _slices(text: str) -> list[Any]:
    return [item.split(CROSSING) if CROSSING in item else item for item in names_in(text)]


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
        spec = parse_spec(_added(_content(before), _content(spec)), uri)
        if spec.identity() != before.identity():
            what, instead = _instead(store, runs, before, spec)
            raise SpecError(f"{uri} is another spec of this name, {what}; {instead}choose another name with --name")
    text = as_yaml(spec).encode()
    if there != text:
        store.write(key, text)
    log.info("spec: %s", uri)
    return spec


def _added(before: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys and values of two specs; where both have one, the new one."""
    found = dict(before) | dict(new)
    for key in before.keys() & new.keys():
        if isinstance(before[key], Mapping) and isinstance(new[key], Mapping):
            found[key] = _added(before[key], new[key])
    return found


def _instead(store: Store, runs: Sequence[str], before: Spec, new: Spec) -> tuple[str, str]:
    """Return how a spec differs from one that has runs, and the commands that draw as many labels as it asks for."""
    own, asked = before.sample.budget, new.sample.budget
    if own is None or asked is None or own == asked:
        values, others = _by_key(before.identity()), _by_key(new.identity())
        differing = sorted(key for key in values.keys() | others.keys() if values.get(key) != others.get(key))
        texts = [f"{key}={values.get(key, 'none')}" for key in differing]
        return f"with {shortened(', '.join(texts), 200)}", "run that one, or "
    run = quote(store.uri_of(runs[0]).removeprefix("file://")) if len(runs) == 1 else "RUN"
    again = f"`opacc run --like {run} --method {new.sample.method} --budget {asked}` draws {asked} anew; or "
    if asked < own:
        return f"with sample.budget={own}", again
    more = f"`opacc next {run} --budget {asked - own}` draws {asked - own} more"
    return f"with sample.budget={own}", f"once those are labelled, {more}; {again}"


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
