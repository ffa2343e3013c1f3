"""``opacc``: parse, call, print. Results go to stdout, progress and errors to stderr."""

import argparse
import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import opacc_ray
from opacc_ray.audit.progress import Progress
from opacc_ray.errors import LabelError, OpaccError, SpecError

EXIT_CODES = """exit codes: 0 done · 1 unexpected failure · 2 wrong usage, spec or parameter · 3 storage ·
4 cluster · 5 pool, model or features · 6 labels · 130 interrupted (what is done is kept; run again)"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s", force=True)
    for name in ("botocore", "boto3", "urllib3", "s3transfer"):
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.path.insert(0, os.getcwd())  # the user's own modules: model.factory and transform
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints of workers that died; stdout is for the result alone
            result, text = options.run(options)
    except OpaccError as error:
        return _fail(options, str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail(options, "interrupted; what is done is kept, so run the same command again", 130)
    except Exception as error:  # a fault of the program: whoever mends it needs the trace
        traceback.print_exc()
        return _fail(options, f"unexpected {type(error).__name__}: {error}", 1)
    print(json.dumps(result, ensure_ascii=False) if options.json else text)
    return 0


def _fail(options: argparse.Namespace, message: str, code: int) -> int:
    print(f"opacc: {message}", file=sys.stderr)
    if options.json:
        print(json.dumps({"error": message, "exit_code": code}, ensure_ascii=False))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opacc",
        description="Accuracy of a model on an unlabelled pool, with an interval, from few labels.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"opacc {opacc_ray.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run_commands(commands)
    _add_label_commands(commands)
    _add_experiments(commands)
    return parser


def _add_run_commands(commands: Any) -> None:
    command = _add(commands, "run", _run, "extract features, select, write manifests")
    command.add_argument("spec", metavar="SPEC.yaml")

    command = _add(commands, "status", _status, "what is done and what a run waits for")
    command.add_argument("uri", metavar="RUN")

    command = _add(commands, "select", _select, "another selection from the same features")
    command.add_argument("uri", metavar="RUN")
    command.add_argument("--method", required=True)
    command.add_argument("--budget", type=int)
    command.add_argument("--seed", type=int, help="default: the spec's")
    command.add_argument("--replicates", type=int, metavar="R", help="choose from R parts of the pool apart")
    command.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the method, in YAML"
    )

    command = _add(commands, "next", _next, "what to label next, knowing all labels so far")
    command.add_argument("uri", metavar="RUN")
    command.add_argument("--budget", type=int)
    command.add_argument("--method", help="default: that of the round before")
    command.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter, in YAML; the others stay as they were, unless the method changes",
    )
    command.add_argument(
        "--replicates", type=int, metavar="R", help="default: as many as in the round before; 0: without"
    )
    command.add_argument("--close", action="store_true", help="give up the labels that are missing")
    command.add_argument(
        "--until",
        type=_half_width,
        metavar="±W",
        help="stop once the interval is ±W; else draw what is expected to lack",
    )


def _add_label_commands(commands: Any) -> None:
    labels = commands.add_parser("labels", help="labels that come back").add_subparsers(
        required=True, metavar="COMMAND"
    )
    command = _add(labels, "import", _import, "take a file of labels back: CSV or JSONL with id and label")
    command.add_argument("uri", metavar="RUN")
    command.add_argument("file", metavar="FILE")
    _add_conflict(command)

    command = _add(commands, "estimate", _estimate, "accuracy with its interval")
    command.add_argument("uri", metavar="RUN")
    command.add_argument("--costs", metavar="COSTS.yaml", help="what errors cost, by class: state the mean cost, too")
    command.add_argument("--assist", action="store_true", help="state it with the help of the pool's confidence, too")
    _add_statement(command)

    command = _add(commands, "compare", _compare, "the model of a run beside another one, by the labels of the run")
    command.add_argument("uri", metavar="RUN", help="whose labels are used")
    command.add_argument("other", metavar="OTHER", help="a run of another model on the same pool; needs no labels")
    _add_statement(command)


def _add_experiments(commands: Any) -> None:
    command = _add(commands, "study", _study, "compare methods on data whose outcomes are all known")
    command.add_argument("cases", metavar="CASE|SPEC.yaml", nargs="+", help=".npz, .csv, .parquet, or a folder of them")
    command.add_argument("--method", action="append", help="such as ces or neyman:rounds=4; repeat for more")
    command.add_argument("--budget", type=int, action="append", help="number of labels; repeat for more")
    command.add_argument("--repetitions", type=int, help="default: 1000")
    command.add_argument("--seed", type=int, help="default: 0")
    command.add_argument("--level", type=_level, help="of the intervals; default: 0.95")
    command.add_argument("--error-scale", type=float, help="regression: score = 1 - (error / scale)²")
    command.add_argument("--shuffle", metavar="FEATURE", action="append", help="put it in random order, as a control")
    command.add_argument("--workers", type=int, help="tasks at a time; default: all CPUs of the cluster")
    command.add_argument("--output", metavar="FOLDER", help="folder or prefix of the results; default: study")

    command = _add(commands, "demo", _demo, "all of it on embedded data, in about a minute")
    command.add_argument("--folder", type=Path, help="where to keep it; default: a new temporary folder")


def _add(commands: Any, name: str, run: Callable[..., Any], text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES)
    command.add_argument("--json", action="store_true", help="one JSON object on stdout")
    command.set_defaults(run=run)
    return command


def _add_statement(command: argparse.ArgumentParser) -> None:
    command.add_argument("--level", type=_level, default=0.95, help="of the intervals; default: 0.95")
    command.add_argument("--partial", action="store_true", help="treat missing labels as missing at random")
    _add_conflict(command)


def _add_conflict(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--conflict", choices=("error", "majority"), default="error", help="what to do where labels differ"
    )


def _run(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.audit import steps
    from opacc_ray.spec import load_spec

    run = steps.run(load_spec(options.spec), progress=Progress("extract", "shards"))
    return _selected(run)


def _status(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.audit import results
    from opacc_ray.audit.run import Run

    state = results.status(Run.open(options.uri))
    shards = state["shards"]
    lines = [f"run        {state['run']}", f"features   {shards['done']} of {shards['total']} shards"]
    if state["examples"] is not None:
        lines.append(f"examples   {state['examples']}, {state['excluded']} excluded")
    for item in state["rounds"]:
        lines.append(
            f"round {item['round']}    {item['method']}: {item['labelled']} of {item['budget']} labelled, "
            f"{item['missing']} missing, {item['unsure']} can't tell, {item['given_up']} given up"
        )
    if state["estimate"]:
        lines.append(f"accuracy   {_accuracy(state['estimate'])}")
    return state, "\n".join([*lines, f"waits for  {state['waits_for']}"])


def _select(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.audit import steps
    from opacc_ray.audit.run import Run

    run = Run.open(options.uri)
    parameters = _parameters(options.set)
    steps.select(run, options.method, options.budget, parameters, options.seed, options.replicates)
    return _selected(run)


def _next(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.audit import results, steps
    from opacc_ray.audit.run import Run

    run, budget = Run.open(options.uri), options.budget
    parameters, to_go = _parameters(options.set), None
    if options.until is not None:
        to_go = results.labels_to_go(run, options.until, close=options.close)
        if to_go == 0:
            if options.close:
                steps.close(run)
            result = {"run": run.uri, "reached": True, "labels_to_go": 0}
            return result, f"reached    the interval is ±{options.until:g} or narrower; no more labels are needed"
        logging.getLogger("opacc_ray").info("about %d more labels are expected to reach ±%g", to_go, options.until)
        budget = budget or to_go
    steps.next_round(
        run,
        budget,
        method=options.method,
        parameters=parameters,
        replicates=options.replicates,
        close=options.close,
    )
    result, text = _selected(run)
    return result if to_go is None else result | {"reached": False, "labels_to_go": to_go}, text


def _half_width(text: str) -> float:
    return _between_0_and_1(text.removeprefix("±"), f"{text}: give a half-width between 0 and 1, such as 0.02")


def _level(text: str) -> float:
    return _between_0_and_1(text, f"{text}: give a confidence level between 0 and 1, such as 0.95")


def _between_0_and_1(text: str, message: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(message)
    return value


def _import(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.audit.labelled_rounds import import_labels
    from opacc_ray.audit.run import Run

    try:
        data = Path(options.file).read_bytes()
    except OSError as error:
        raise LabelError(f"the labels {options.file} cannot be read: {error.strerror}") from None
    result = import_labels(Run.open(options.uri), options.file, data, conflict=options.conflict)
    lines = [
        f"{result['labelled']} labelled, {result['missing']} missing, {result['unsure']} can't tell "
        f"({result['rows']} rows read from {options.file})"
    ]
    lines += [
        f"{item['rows']} rows answer examples that were given up when round {item['round']} was closed and are not used"
        for item in result["not_used"]
    ]
    return result, "\n".join(lines)


def _estimate(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.audit import results
    from opacc_ray.audit.run import Run
    from opacc_ray.labelling.costs import load_costs

    run = Run.open(options.uri)
    result = results.estimate(
        run,
        **_statement(options),
        costs=load_costs(options.costs, run.spec.model, run.num_classes) if options.costs else None,
        assist=options.assist,
    )
    plain, sequence = result["srs"], result["sequence"]
    lines = [
        f"accuracy   {_accuracy(result)}",
        f"by SRS     {plain['low']:.4f} to {plain['high']:.4f} with as many labels{_worth(plain)}",
        f"any time   {sequence['low']:.4f} to {sequence['high']:.4f}, which holds however often you look",
    ]
    if sequence["reason"]:
        lines[-1] += f"; {sequence['reason']}"
    if "assisted" in result:
        lines.append(f"assisted   {_accuracy(result['assisted'])}")
    if "mean_cost" in result:
        lines.append(f"mean cost  {_interval(result['mean_cost'])}")
    return result, "\n".join([*lines, *_rests_on(result)])


def _compare(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.audit import results
    from opacc_ray.audit.run import Run

    result = results.compare(Run.open(options.uri), Run.open(options.other), **_statement(options))
    difference = result["difference"]
    first, second = result["num_first_better"], result["num_second_better"]
    neither = difference["n"] - first - second
    lines = [
        f"accuracy   {_accuracy(result['first'])} of {result['run']}",
        f"other      {_accuracy(result['second'])} of {result['other']}",
        f"difference {_interval(difference, '+.4f')}",
        f"better     the first on {first} labels, the other on {second}, neither on {neither}",
    ]
    if not result["same_listing"]:
        lines.append("note       the two pools were listed differently; examples are matched by their ids alone")
    return result, "\n".join([*lines, *_rests_on(result | {"reason": difference["reason"]})])


def _statement(options: argparse.Namespace) -> dict[str, Any]:
    return {"level": options.level, "partial": options.partial, "conflict": options.conflict}


def _rests_on(result: dict[str, Any]) -> list[str]:
    """What a result is of, what it leaves out, and why it is not design-based."""
    lines = [f"pool       {result['pool_size']} examples"]
    if result["excluded"]:
        lines[-1] += f"; {result['excluded']} more could not be read and are not counted"
    if result["unsure"]:
        lines.append(f"left out   {result['unsure']} examples that annotators could not tell")
    given_up = [f"{item['given_up']} labels of round {item['round']}" for item in result["rounds"] if item["given_up"]]
    if given_up:
        lines.append(f"given up   {', '.join(given_up)}")
    if result["reason"]:
        lines.append(f"note       {result['reason']}")
    return lines


def _study(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.study.command import study

    return study(options, Progress("study", "blocks"))


def _demo(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from opacc_ray.demo import run_demo

    return run_demo(options.folder)


def _selected(run: Any) -> tuple[dict[str, Any], str]:
    selection = run.read_selection(run.rounds()[-1])
    manifests = run.manifests(selection.round)
    result = {
        "run": run.uri,
        "method": selection.method,
        "round": selection.round,
        "n": len(selection),
        "pool_size": selection.pool_size,
        "manifests": manifests,
    }
    lines = [
        f"run        {run.uri}",
        f"selected   {len(selection)} of {selection.pool_size} examples by {selection.method}",
        *(f"manifest   {uri}" for uri in manifests),
        f"next       label them, then: opacc labels import {run.uri} FILE",
    ]
    return result, "\n".join(lines)


def _worth(plain: dict[str, Any]) -> str:
    size = plain["effective_size"]
    return f"; these are worth {size:.0f} of its labels" if size else ""


def _accuracy(result: dict[str, Any]) -> str:
    """Cut to its interval, which an unbiased estimate may leave where few labels fail or few succeed."""
    return _interval(result | {"value": min(max(result["value"], result["low"]), result["high"])})


def _interval(result: dict[str, Any], form: str = ".4f") -> str:
    value, low, high = (f"{result[name]:{form}}" for name in ("value", "low", "high"))
    level = f"{100 * result['level']:g}%"
    return f"{value}, {level} interval {low} to {high} ({result['interval']}, {result['n']} labels)"


def _parameters(given: Sequence[str]) -> dict[str, Any]:
    import yaml

    parameters = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator:
            raise SpecError(f"--set {item}: write NAME=VALUE, such as --set sections=20")
        try:
            parameters[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SpecError(f"--set {item}: the value is not YAML: {' '.join(str(error).split())}") from None
    return parameters
