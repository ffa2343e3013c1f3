"""Names of runs on this machine.

A short name such as ``digits-cfbb3651`` is looked up under ``$OPACC_OUTPUT``, or else under the outputs that commands
used on this machine. They are kept in ``$XDG_STATE_HOME/opacc/outputs.json``, newest first, with the names of their
runs.
"""

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from shlex import quote

from opacc_ray.errors import DataError, OpaccError, shortened

OUTPUT = "OPACC_OUTPUT"
"""Environment variable that names the output of short names."""

MOST_OUTPUTS, MOST_RUNS = 20, 200
"""Outputs that are kept, and runs of each."""

USUAL_OUTPUT = "audits"
"""The output, in the current folder, of a run of a file of predictions."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}-[0-9a-f]{8}")


def uri_of(given: str) -> str:
    """Return the URI of a run that a user names; a URI or path is returned as it is.

    Raises DataError if no output, or more than one, holds a run of that name.
    """
    if Path(given).exists():
        return given
    asked = os.environ.get(OUTPUT)
    outputs = known_outputs()
    if not _NAME.fullmatch(given):
        runs = [name for names in outputs.values() for name in names if name.rpartition("-")[0] == given]
        if runs:
            raise DataError(f"{given} is the name of an audit; give one of its runs: {shortened(', '.join(runs), 200)}")
        return given
    places = [asked] if asked else [output for output, names in outputs.items() if given in names]
    usual = [str(Path(USUAL_OUTPUT).resolve())] if Path(USUAL_OUTPUT).is_dir() else []
    uris = [uri for place in places or dict.fromkeys([*usual, *outputs]) if (uri := _run_in(place, given))]
    if len(uris) == 1:
        if not asked:
            remember(uris[0])
        return uris[0]
    if uris:
        raise DataError(f"{len(uris)} outputs hold a run {given}: {', '.join(uris)}; give one of these URIs")
    where = f"${OUTPUT} ({asked})" if asked else f"./{USUAL_OUTPUT}"
    here = outputs.get(asked or str(Path(USUAL_OUTPUT).resolve()), [])
    has = f", which has {shortened(', '.join(here), 200)}" if here else ""
    raise DataError(
        f"there is no run {given} in {where}{has}; give its URI, or set {OUTPUT} to the `output` of its spec"
    )


def _run_in(output: str, name: str) -> str | None:
    """Return the URI of a run below an output; None if it is not there, or the output cannot be read."""
    from opacc_ray.lake.store_uris import open_store
    from opacc_ray.runs.run import HEADER

    with contextlib.suppress(OpaccError):
        store = open_store(output).store(name)
        return store.uri if store.exists(HEADER) else None
    return None


def short_name(uri: str) -> str:
    """Return the shortest name that :func:`uri_of` resolves to a run, quoted for a shell."""
    output, _, name = uri.rstrip("/").rpartition("/")
    if not _NAME.fullmatch(name) or Path(name).exists():
        return quote(uri)
    if asked := os.environ.get(OUTPUT):
        from opacc_ray.lake.store_uris import open_store

        holders = [open_store(asked).uri.rstrip("/")]
    else:
        holders = [known for known, names in known_outputs().items() if name in names]
    return name if holders == [output] else quote(uri)


def known_outputs() -> dict[str, list[str]]:
    """Return the outputs that commands used, newest first, each with the names of its runs."""
    try:
        kept = json.loads(_state_file().read_text(encoding="utf-8"))["outputs"]
        return {str(output): [str(name) for name in names] for output, names in kept.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def remember(uri: str) -> None:
    """Keep the output and the name of a run; a state file that cannot be written is no error."""
    output, _, name = uri.rstrip("/").rpartition("/")
    outputs = known_outputs()
    names = [name, *(known for known in outputs.pop(output, []) if known != name)][:MOST_RUNS]
    kept = dict(list(({output: names} | outputs).items())[:MOST_OUTPUTS])
    with contextlib.suppress(OSError):
        path = _state_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        number, draft = tempfile.mkstemp(dir=path.parent)
        with open(number, "w", encoding="utf-8") as file:
            json.dump({"outputs": kept}, file, indent=2)
        os.replace(draft, path)


def _state_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "opacc" / "outputs.json"
