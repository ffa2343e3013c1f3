"""Pack a run into one archive, and check an archive that somebody else made.

    pack.json, SHEET.md     what its maker says of it, and where a reader finds what
    NAME/…                  the run's own files: spec.json, the log, all files that it names, signatures, reports
    features/DIGEST/…       what its model answered for the pool, if that is small

Unpacked, it is an output with one run, so all that reads a run reads it. Members are stored without compression, in
the order of their names: equal files give equal bytes, and nothing else can be in the archive.

Nothing of an archive is run, and nothing outside it is read. Its files are unpacked into a temporary folder, where the
run is verified like any other. Then its newest estimate is recomputed from labels and features, with this version of
the estimators.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from opacc_ray.audit.accuracy import estimate, measure_accuracy
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, OpaccError, counted, shortened, shown
from opacc_ray.estimation.failures import uses_regression
from opacc_ray.extensions.evidence.evidence import FOLDER as SIGNATURES
from opacc_ray.extensions.evidence.evidence import read_keys, read_seal, unlogged_keys
from opacc_ray.extensions.evidence.verify import Findings, Verified, check_run, check_signed
from opacc_ray.extract.feature_set import DESCRIPTION, HOME, INDEX, read_index
from opacc_ray.extract.table_columns import folder_of
from opacc_ray.labels.joining import LabelConflict
from opacc_ray.labels.labelled_rounds import digest_of, having_labels, read_rounds
from opacc_ray.lake.store_uris import Store, join, open_store, split, write_object
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.runs.estimate_documents import AccuracyEstimate, Stated
from opacc_ray.runs.run import RUN_FILES, Run, versions
from opacc_ray.runs.run_documents import FOLDER as LOG
from opacc_ray.runs.run_documents import digest_of as digest_of_bytes
from opacc_ray.runs.series import Attempts, attempts_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

DESCRIBED, SHEET = "pack.json", "SHEET.md"

MOST_BYTES = 256 << 20
"""Features up to this size are packed unless the caller decides."""


class PackedRun(Document):
    """The file `pack.json` of an archive: what its maker says of it."""

    remedy: ClassVar[str] = "ask for the archive again"

    format: Literal["opacc-packed/1"] = format_field("opacc-packed/1")
    run: str = Field(description="URI of the run")
    name: str = Field(pattern="^[^/\\\\]+$", description="name of the run: its folder in the archive")
    made_with: str = Field(description="version of opacc_ray that made the archive")
    features: bool = Field(description="whether the archive has the features")
    attempts: Attempts = Field(description="the runs and draws of this pool that the output knew")


class EvidencePack(Document):
    """An archive with which others check a run."""

    format: Literal["opacc-pack/2"] = format_field("opacc-pack/2")
    file: str = Field(description="URI of the archive")
    sha256: str = Field(description="its digest")
    files: int = Field(ge=1, description="number of files in it")
    signatures: int = Field(ge=0, description="number of signatures")
    packed: PackedRun = Field(description="what its file `pack.json` says")


def pack(run: Run, to: str, *, features: bool | None = None) -> EvidencePack:
    """Write an archive, with features if they are small; ``features`` decides otherwise.

    Raises DataError if there is no estimate, labels came after the newest one, or a file is lost.
    """
    stated = run.read_estimate()
    if stated is None:
        raise DataError(f"{run.uri} has no estimate, so a pack would state no number; run `opacc estimate` first")
    refuse_other_labels(run, stated)
    if features is None:
        features = sum(size for *_, size in _features(run)) <= MOST_BYTES
    said = PackedRun(
        run=run.uri,
        name=run.name,
        made_with=versions()["opacc_ray"],
        features=features,
        attempts=attempts_of(run),
    )
    contents = {DESCRIBED: said.to_bytes(), SHEET: sheet(run, said).encode()}
    for name, (store, key) in members(run, features=features).items():
        content = store.read_if_there(key)
        if content is None:
            raise DataError(f"{store.uri_of(key)} is lost; restore it from a backup")
        contents[name] = content
    data = zipped(contents)
    return EvidencePack(
        file=write_object(to, data),
        sha256=digest_of_bytes(data),
        files=len(contents),
        signatures=len(run.store.list(SIGNATURES)),
        packed=said,
    )


def refuse_other_labels(run: Run, stated: AccuracyEstimate) -> None:
    """Raise DataError if an estimate does not count the labels of its run."""
    with suppress(LabelConflict):
        if digest_of(read_rounds(run)) == stated.labels_digest:
            return
    raise DataError(f"{run.uri} has labels that its newest estimate does not count; run `opacc estimate` first")


def members(run: Run, *, features: bool) -> dict[str, tuple[Store, str]]:
    """Return the store and key of each file of a run that belongs into its archive, by its name there."""
    places = [entry.key for place in (LOG, SIGNATURES) for entry in run.store.list(place)]
    logged = [key for commit in run.commits for key in commit.files]
    others = [key for key in unlogged_keys(run) if RUN_FILES.fullmatch(key)]
    found = {f"{run.name}/{key}": (run.store, key) for key in (*places, *logged, *others)}
    in_run = run.header.features is None
    for place, folder, key, _ in _features(run):
        if features or key in (INDEX, DESCRIPTION):
            home = f"{run.name}/features" if in_run else f"{HOME}/{run.feature_set.folder.uri.rpartition('/')[2]}"
            found["/".join(filter(None, (home, place, key)))] = folder, key
    return found


def _features(run: Run) -> Iterator[tuple[str, Store, str, int]]:
    """Yield each file of the features: the place of its folder in the set, its store, its key and its size."""
    slices = [folder_of(run.spec.pool, run.complete_features().features)] if run.spec.pool.slice_rules else []
    for folder in (*run.feature_set.folders, *slices):
        index, place = read_index(folder), folder.uri.removeprefix(run.features.uri).strip("/")
        sizes = {entry.key: entry.size for entry in folder.list()}
        yield from ((place, folder, key, sizes[key]) for key in (INDEX, DESCRIPTION) if key in sizes)
        if index:
            yield from ((place, folder, own.file, sizes.get(own.file, 0)) for own in index.shards)


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return an archive; equal files give equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name)
            info.create_system = 3  # on every system
            archive.writestr(info, files[name])
    return out.getvalue()


def sheet(run: Run, said: PackedRun) -> str:
    """Return the sheet of a run as Markdown."""
    header = run.header
    weights = header.model.sha256 or "unknown"
    lines = [f"# Evidence of {run.name}", ""]
    if found := run.read_estimate():
        value = f"{found.value:.6g}, {100 * found.level:g} % interval {found.low:.6g} to {found.high:.6g}"
        lines.append(f"- {found.measure} {value}, {counted(found.n, 'label')}")
    lines += [
        f"- Model: weights {weights}, code {header.code_digest or 'none: the pool holds answers'}",
        f"- Attempts: {said.attempts}",
        f"- Made with opacc_ray {said.made_with}",
        "",
        (files("opacc_ray.extensions.evidence") / "templates" / "sheet.md").read_text(encoding="utf-8"),
    ]
    own = read_seal(run)
    if own is None:
        lines.append("Nothing was sealed before the first label.")
    else:
        goal = "" if own.seal.half_width is None else f", until ±{own.seal.half_width:g}"
        parts = f" by {', '.join(own.seal.by)}" if own.seal.by else ""
        lines.append(
            f"Sealed at {own.at}{f' by {own.seal.promised_by}' if own.seal.promised_by else ''}: "
            f"{', '.join(own.seal.metrics)}{parts} at level {own.seal.level:g}{goal}."
        )
        lines += [f"- Deviation: {text}." for text in own.deviations]
    return "\n".join(lines) + "\n"


TOLERANCE = 1e-8
"""Relative difference between a stated and a recomputed number that machines explain."""

NAMED = 5
"""Differences of an estimate that are named; the others are counted."""

_NO_NUMBERS = {"run", "lead", "objects", "notes", "warnings", "label_files", "sha256", "by_slice"}
"""Fields of an estimate that are not compared as they are: places, sentences, and slices, which are found by name."""


Extent = Literal["all numbers", "the accuracy by design", "nothing"]
NOTHING: Extent = "nothing"


class RecomputedEstimate(Part):
    """The newest estimate of a run, and what of it was recomputed."""

    entry: int = Field(ge=1, description="entry of the log that states it")
    measure: str = Field(description="what is estimated")
    value: float = Field(description="the estimate, as it is stated")
    low: float = Field(description="lower end of its interval")
    high: float = Field(description="upper end of its interval")
    level: float = Field(gt=0, lt=1, description="confidence level")
    n: int = Field(ge=0, description="labels that it is computed from")
    recomputed: Extent = Field(
        description="what was recomputed from the labels: without features little or nothing can be"
    )
    earlier: int = Field(ge=0, description="earlier estimates, which are not recomputed")


class PackVerification(Verified, Document):
    """Result of checking an archive of evidence."""

    format: Literal["opacc-pack-verification/1"] = format_field("opacc-pack-verification/1")
    file: str = Field(description="URI of the archive")
    sha256: str = Field(description="its digest")
    run: str = Field(description="URI of the run, as the maker of the archive says")
    made_with: str = Field(description="version of opacc_ray that made the archive, as its maker says")
    verified_with: str = Field(description="version of opacc_ray that checked it")
    weights: str | None = Field(description="SHA-256 of the model's weights; null: unknown")
    code: str | None = Field(description="digest of the model's code; null: no code ran")
    estimate: RecomputedEstimate | None = Field(description="the newest estimate; null: none, or it cannot be read")
    attempts: Attempts = Field(description="the runs and draws of this pool, as the maker of the archive says")


def verify_pack(
    uri: str, keys: Sequence[str] = (), *, head: str | None = None, allow_later: bool = False
) -> PackVerification:
    """Check an archive, its signatures by public keys, and recompute its newest estimate.

    The arguments are those of :func:`opacc_ray.extensions.evidence.verify.verify`.
    Raises DataError if it is no archive of evidence, or was not written by `opacc evidence pack`.
    """
    folder, name = split(uri)
    store = open_store(folder)
    data, place = store.read(name), store.uri_of(name)
    files, public = _files_in(data, place), read_keys(keys)
    with TemporaryDirectory(prefix="opacc-") as home:
        open_store(home).write_many(files.items())
        try:
            return _verified(place, data, files, home, public, head, allow_later=allow_later)
        except OpaccError as error:
            raise DataError(f"{place}: {str(error).replace(f'{home}/', '')}") from None
        except Exception as error:  # whatever a stranger's bytes do to a reader is their fault, and one sentence
            said = f"{type(error).__name__}: {shortened(str(error), 100)}".replace(f"{home}/", "")
            raise DataError(f"{place} cannot be verified ({said}); ask for the archive again") from None


def _files_in(data: bytes, place: str) -> dict[str, bytes]:
    """Return the content of each member by its name; raises DataError unless `zipped` would write the same bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = archive.infolist()
            _refuse_strange(found, len(data), place)
            files = {member.filename: archive.read(member) for member in found}
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, UnicodeError) as error:
        reason = shortened(str(error), 100)
        raise DataError(f"{place} is no sound archive of evidence ({reason}); ask for it again") from None
    if zipped(files) != data:
        raise DataError(
            f"{place} has members twice or compressed, bytes of none, or another order; ask for the archive as "
            "`opacc evidence pack` wrote it"
        )
    if DESCRIBED not in files:
        raise DataError(f"{place} has no {DESCRIBED}; give an archive that `opacc evidence pack` wrote")
    return files


def _refuse_strange(found: Sequence[zipfile.ZipInfo], size: int, place: str) -> None:
    """Raise DataError for members that other programs may unpack elsewhere, or to a larger size."""
    remedy = "do not unpack it, and ask for the archive as `opacc evidence pack` wrote it"
    for member in found:
        name = member.filename
        if not set(name.split("/")).isdisjoint(("", ".", "..")) or "\\" in name or ":" in name:
            raise DataError(f"{place} has the member {shown(name)}, which is no file below a folder; {remedy}")
    if sum(member.file_size for member in found) > size:
        raise DataError(f"{place} has members that expand, and `opacc evidence pack` compresses none; {remedy}")


def _verified(
    place: str,
    data: bytes,
    files: Mapping[str, bytes],
    home: str,
    keys: Mapping[str, "Ed25519PublicKey"],
    head: str | None,
    *,
    allow_later: bool,
) -> PackVerification:
    """Verify the run that was unpacked below ``home``, and recompute its estimate."""
    said = PackedRun.from_bytes(files[DESCRIBED], f"{place}: {DESCRIBED}")
    run, found = _open_apart(home, said.name), Findings(home)
    found.attempt(run.store.uri_of("log"), run.refuse_rollback, head)
    check_signed(run, keys, found, allow_later=allow_later)
    check_run(run, found, has_features=said.features)
    known = {DESCRIBED, SHEET, *members(run, features=said.features)}
    for name in sorted(files.keys() - known):
        found.note(name, f"{name} is no file of the run: its log does not name it; do not use it")
    if files.get(SHEET) != sheet(run, said).encode():
        found.note(SHEET, f"{SHEET} is not what opacc writes of this run; do not read it{_versions(said)}")
    estimate = _recomputed(run, said, found)
    return PackVerification(
        file=place,
        sha256=digest_of_bytes(data),
        run=said.run,
        made_with=said.made_with,
        verified_with=versions()["opacc_ray"],
        weights=run.header.model.sha256,
        code=run.header.code_digest,
        estimate=estimate,
        attempts=said.attempts,
        **found.fields(),
    )


def _open_apart(home: str, name: str) -> Run:
    """Open an unpacked run so that nothing outside ``home`` is read: its spec may name any pool and reference."""
    run = Run.open(join(home, name))
    pool = run.spec.pool.model_copy(
        update={"uri": join(home, "no-pool"), "catalog": None, "table": None, "access": None}
    )
    header = run.header.model_copy(
        update={
            "spec": run.spec.model_copy(update={"pool": pool}),
            "pool": run.header.pool.model_copy(update={"version": None}),
            "reference": None,
        }
    )
    return Run(run.store, header)


# -- recomputed numbers ----------------------------------------------------------------------------------------


def _recomputed(run: Run, said: PackedRun, found: Findings) -> RecomputedEstimate | None:
    """Recompute the newest estimate, and note where it differs."""
    if not run.logged(Stated):
        found.note(DESCRIBED, "the log has no estimate, so this archive states no number")
    estimates = found.attempt(run.uri, run.estimates)
    if not estimates:
        return None
    commit, stated = estimates[-1]
    source, what = run.store.uri_of(next(iter(commit.files))), NOTHING
    with found.checking(source):
        before = run.at(run.commits[: commit.number - 1])
        what, numbers = _numbers(before, stated, has_features=said.features)
        differences = list(_differences(_comparable(stated), numbers, ""))
        for text in differences[:NAMED]:
            found.note(source, f"{source}: {text}{_versions(said)}")
        if len(differences) > NAMED:
            found.note(source, f"{source}: {counted(len(differences) - NAMED, 'more number')} differ")
    return RecomputedEstimate(
        entry=commit.number, recomputed=what, earlier=len(estimates) - 1,
        **stated.model_dump(include={"measure", "value", "low", "high", "level", "n"}),
    )  # fmt: skip


def _versions(said: PackedRun) -> str:
    now = versions()["opacc_ray"]
    return "" if now == said.made_with else f"; it was made with opacc {said.made_with} and checked with {now}"


def _numbers(run: Run, stated: AccuracyEstimate, *, has_features: bool) -> tuple[Extent, dict[str, Any]]:
    """Return what could be recomputed of an estimate, and its numbers, from a run as it was before."""
    refuse_other_labels(run, stated)
    if has_features:
        found = estimate(
            run,
            level=stated.level,
            partial=True,
            costs=stated.mean_cost.costs if stated.mean_cost else None,
            assist=stated.assisted is not None,
            metrics=[ACCURACY, *stated.metrics],
            by=list(dict.fromkeys(table.by for table in stated.by_slice)),
            keep=False,
        )
        return "all numbers", _comparable(found)
    known = having_labels(read_rounds(run))
    if uses_regression([item.known for item in known]) or stated.by_design is None:
        return NOTHING, _comparable(stated)
    by_design = measure_accuracy(run, known).estimate(stated.level)
    kept = {name: getattr(by_design, name) for name in ("value", "low", "high", "standard_error")}
    return "the accuracy by design", _comparable(stated) | {"by_design": stated.by_design.model_dump() | kept}


def _comparable(own: AccuracyEstimate) -> dict[str, Any]:
    """Return the numbers of an estimate, slices by their names."""
    content = own.model_dump(mode="json", exclude=_NO_NUMBERS)
    tables = {f"{table.metric} by {table.by}": table.model_dump(mode="json") for table in own.by_slice}
    return content | {"slices": tables}


def _differences(stated: Any, found: Any, place: str) -> Iterator[str]:
    """Yield where a stated value differs from the recomputed one; what was not stated is not compared."""
    if isinstance(stated, dict) and isinstance(found, dict):
        for key, own in stated.items():
            yield from _differences(own, found.get(key), f"{place}/{key}" if place else str(key))
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for number, (own, other) in enumerate(zip(stated, found, strict=True)):
            yield from _differences(own, other, f"{place}/{number}")
    elif isinstance(stated, float | int) and isinstance(found, float | int):
        if not abs(stated - found) <= TOLERANCE * max(1.0, abs(stated)):
            yield f"{place} is {stated:.10g}, and {found:.10g} recomputed"
    elif stated is not None and stated != found:
        yield f"{place} is {shown(stated)}, and {shown(found)} recomputed"
