"""Slices of a run: columns of any table, cuts and folders, stored once next to the features and read from there."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from extracting_here import extracting_here
from safetensors.torch import save
from small_model import trained
from small_pictures import picture

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.checks import check
from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.extract import table_columns
from opacc_ray.extract.feature_files import check_type
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.pool import SliceRule
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

N = 24
CAMERA = [["front", "rear", None][i % 3] if i < 12 else "left" for i in range(N)]  # each file has values of its own
AGE = [None if i % 8 == 5 else 5 * i for i in range(N)]
IDS = [f"x{i:02d}" for i in range(N)]
COLUMNS = {"id": "key", "uri": "place", "prediction": "said", "confidence": "sure"}
SLICES = ["camera", {"age": [30, 60]}, ["camera", "age"], "folder", {"folder": 1}]


def table(rows: range) -> pa.Table:
    return pa.table(
        {
            "key": [IDS[i] for i in rows],
            "place": [f"a{i % 2}/b{i % 3}/{i}.png" if i else "0.png" for i in rows],
            "said": [i % 2 for i in rows],
            "sure": [0.5 + i / 100 for i in rows],
            "camera": pa.array([CAMERA[i] for i in rows], pa.string()),
            "age": pa.array([AGE[i] for i in rows], pa.int64()),
            "size": pa.array([i / 2 for i in rows]),
            "new": pa.array([i % 5 == 0 for i in rows]),
            "tags": [["a", "b"] for _ in rows],
        }
    )


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Two Parquet files of 12 rows, in row groups of 4."""
    (tmp_path / "pool").mkdir()
    for start in (0, 12):
        pq.write_table(table(range(start, start + 12)), tmp_path / "pool" / f"{start:02d}.parquet", row_group_size=4)
    return tmp_path / "pool"


def content(place: Path, slices: Any, /, **sections: Any) -> dict[str, Any]:
    own = {"uri": str(place), "format": "features", "columns": COLUMNS, "slices": slices}
    return {
        "name": "sliced",
        "pool": own | sections.pop("pool", {}),
        "sample": {"method": "srs", "budget": 5},
        "output": str(place.parent / "audits"),
    } | sections


def run_spec(given: dict[str, Any]) -> Run:
    return verbs.first_round(parse_spec(given, "spec"), trial=True)


def slices_of(run: Run) -> dict[str, list[str]]:
    """The slice of each example, by the names of the spec."""
    with run_module.open_view(run, []) as view:
        found = {name: view.slicing(name) for name in run.spec.pool.slice_names}
    return {name: [own.names[code] for code in own.codes.tolist()] for name, own in found.items()}


def stored_files(run: Run) -> dict[str, Path]:
    home = table_columns.folder_of(run.spec.pool, run.complete_features().features)
    return {path.name: path for path in sorted(Path(home.uri).iterdir())}


def age_slice(age: int | None) -> str:
    return "(none)" if age is None else "< 30" if age < 30 else "30 to 60" if age < 60 else ">= 60"


CAMERAS, AGES = [own or "(none)" for own in CAMERA], [age_slice(age) for age in AGE]


@pytest.mark.parametrize("shard_size", [4, 100])
def test_slices_are_the_values_of_the_rows_however_the_pool_is_cut(pool: Path, shard_size: int) -> None:
    run = run_spec(content(pool, SLICES, extract={"shard_size": shard_size}))
    assert len(stored_files(run)) == {4: 7, 100: 2}[shard_size]
    assert slices_of(run) == {
        "camera": CAMERAS,
        "age": AGES,
        "camera*age": [f"{camera}, {age}" for camera, age in zip(CAMERAS, AGES, strict=True)],
        "folder": ["(none)", *(f"a{i % 2}/b{i % 3}" for i in range(1, N))],
        "folder 1": ["(none)", *(f"a{i % 2}" for i in range(1, N))],
    }
    with run_module.open_view(run, []) as view:
        assert view.slicing("camera").names == ("front", "left", "rear", "(none)")
        assert view.slicing("age").names == ("< 30", "30 to 60", ">= 60", "(none)")
        with pytest.raises(SpecError, match="the pool has no slices 'size'; it has camera, age, folder, folder 1"):
            view.slicing("size")


def test_truth_values_and_fractions_name_slices(pool: Path) -> None:
    found = slices_of(run_spec(content(pool, ["new", "size"])))
    assert found["new"] == [str(i % 5 == 0) for i in range(N)]
    assert found["size"] == [f"{i / 2:g}" for i in range(N)]


def test_rows_that_are_filtered_or_excluded_have_no_slice(pool: Path) -> None:
    rows = table(range(12)).drop_columns(["said"]).append_column("said", pa.array([None, *[0] * 11], pa.int64()))
    pq.write_table(rows.select(table(range(1)).column_names), pool / "00.parquet", row_group_size=4)
    filtered = {"pool": {"filter": "camera != 'rear'"}, "extract": {"on_bad_item": "exclude", "shard_size": 4}}
    run = run_spec(content(pool, ["camera"], **filtered))
    kept = [i for i in range(1, N) if CAMERA[i] not in (None, "rear")]
    with run_module.open_view(run, []) as view:
        assert view.identify(np.arange(view.size)) == [IDS[i] for i in kept]
    assert slices_of(run)["camera"] == [CAMERA[i] for i in kept]


def test_a_csv_file_has_slices_and_an_unknown_column_lists_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    rows = [f"{IDS[i]},{i % 2},{CAMERA[i] or ''},{'' if AGE[i] is None else AGE[i]}" for i in range(N)]
    file.write_text("\n".join(["key,said,camera,age", *rows]))
    columns = {"pool": {"uri": str(file), "columns": {"id": "key", "prediction": "said"}}}
    found = slices_of(run_spec(content(tmp_path / "x", ["camera", {"age": [30, 60]}, "folder"], **columns)))
    assert found == {"camera": CAMERAS, "age": AGES, "folder": ["(none)"] * N}
    with pytest.raises(
        DataError, match=r"no column 'camra' \(did you mean 'camera'\?\); it has key, said, camera, age"
    ):
        run_spec(content(tmp_path / "y", ["camra"], **columns))
    assert not (tmp_path / "y").exists()


# -- refused before the first label --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        (["size", "ages"], r"has no column 'ages' \(did you mean 'age'\?\); it has key, place, said"),
        (["tags"], "pool.slices: 'tags' is list<.*>; name a column with one text, number, date or truth value per row"),
        ([{"camera": [3]}], "pool.slices: 'camera' is string, and only numbers have cuts; remove its cuts"),
    ],
)
def test_a_column_that_makes_no_slices_is_refused_before_anything_is_written(
    pool: Path, slices: Any, message: str
) -> None:
    with pytest.raises(OpaccError, match=message):
        run_spec(content(pool, slices))
    assert not (pool.parent / "audits").exists()
    checks, failure = check(parse_spec(content(pool, slices), "spec"), "spec")
    assert not checks.ok
    assert failure is not None


@pytest.mark.parametrize("rule", [SliceRule("time", "time", cuts=(3.0,)), SliceRule("time=x", "time", tag="x")])
def test_times_with_cuts_or_tags_name_a_way_out(rule: SliceRule) -> None:
    with pytest.raises(SpecError, match=r"'time' is timestamp\[us\], and times have .*; add a column of texts"):
        check_type(rule, pa.timestamp("us"))


def test_too_many_values_in_all_shards_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    names = [f"x{i}" for i in range(1200)]
    own = pa.table({"key": names, "place": names, "said": [0] * 1200, "sure": [0.5] * 1200})
    pq.write_table(own, tmp_path / "pool" / "0.parquet", row_group_size=600)
    with pytest.raises(DataError, match="slices 'place' have 1200 different values"):
        run_spec(content(tmp_path / "pool", ["place"], extract={"shard_size": 600}))


# -- stored once ---------------------------------------------------------------------------------------------


def test_lost_and_damaged_files_are_read_again_and_no_other(pool: Path) -> None:
    given = content(pool, SLICES, extract={"shard_size": 4})
    run = run_spec(given)
    before = {name: path.read_bytes() for name, path in stored_files(run).items()}
    times = {name: path.stat().st_mtime_ns for name, path in stored_files(run).items()}
    assert verify(run.uri).sound
    files = stored_files(run)
    files["part-000001.parquet"].unlink()
    files["part-000003.parquet"].write_bytes(before["part-000003.parquet"][:-40] + b"x" * 40)
    assert {fault.file.rpartition("/")[2] for fault in verify(run.uri).faults} == {
        "part-000001.parquet",
        "part-000003.parquet",
    }
    run_spec(given)
    after = stored_files(run)
    assert {name: path.read_bytes() for name, path in after.items()} == before
    again = {name for name, path in after.items() if path.stat().st_mtime_ns != times[name]}
    assert again == {"part-000001.parquet", "part-000003.parquet", "index.json"}


def test_an_interrupted_reading_is_resumed(pool: Path) -> None:
    given = content(pool, SLICES, extract={"shard_size": 4})
    run = run_spec(given)
    whole, files = slices_of(run), stored_files(run)
    for name in ("index.json", "part-000002.parquet", "part-000005.parquet"):
        files[name].unlink()
    with pytest.raises(DataError, match=r"lacks the slices of pool\.slices; run the spec again, which reads only them"):
        slices_of(run)
    run_spec(given)
    assert slices_of(run) == whole


def test_a_row_that_the_pool_lost_is_named(pool: Path) -> None:
    run = run_spec(content(pool, ["camera"]))
    for path in stored_files(run).values():
        path.unlink()
    there = run.complete_features()
    other = parse_spec(content(pool, ["camera"], pool={"filter": "age > 20"}), "spec")
    plan = verbs.start(other)[1][-1].plan
    with pytest.raises(DataError, match="has no row of 'x00' any more; restore the pool"):
        table_columns.store_slices(other.pool, plan, there)


# -- pools that a model runs on ------------------------------------------------------------------------------


def test_slices_that_are_added_later_need_no_new_features(tmp_path: Path) -> None:
    for i in range(12):
        place = tmp_path / "pool" / f"day{i % 2}" / "left" if i % 3 else tmp_path / "pool"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:03d}.png").write_bytes(picture(i))
    (tmp_path / "model.safetensors").write_bytes(save(trained().state_dict()))
    given = content(tmp_path / "pool", None, extract={"batch_size": 4, "shard_size": 5})
    given["pool"] = {"uri": str(tmp_path / "pool"), "format": "images"}
    given["model"] = {"factory": "small_model:network", "weights": f"{tmp_path}/model.safetensors"}
    with extracting_here() as made:
        first = run_spec(given)
        num_made = len(made)
        second = run_spec(given | {"pool": given["pool"] | {"slices": ["folder"]}})
        third = run_spec(given | {"pool": given["pool"] | {"slices": [{"folder": 1}]}})
        assert len(made) == num_made
    assert first.uri == second.uri == third.uri
    assert Run.open(first.uri).header == third.header
    assert third.header.spec.name == first.header.spec.name
    assert third.rounds() == [1]
    assert stored_files(second) == stored_files(third)
    ids = sorted(str(path.relative_to(tmp_path / "pool")) for path in (tmp_path / "pool").rglob("*.png"))
    folders = [name.rpartition("/")[0] for name in ids]
    assert slices_of(second) == {"folder": [name or "(none)" for name in folders]}
    assert slices_of(third) == {"folder 1": [name.partition("/")[0] or "(none)" for name in folders]}
    assert slices_of(first) == {}


def test_slices_are_added_to_a_run_with_labels_and_its_rounds_stay(pool: Path) -> None:
    run = run_spec(content(pool, None))
    selection, features = run.read_selection(1).to_dict(), run.complete_features().digest
    labels = "\n".join(["id,label", *(f"{name},1" for name in selection["ids"])])
    import_labels(run, "labels.csv", labels.encode())
    sliced = run_spec(content(pool, ["camera", "age"]))
    assert sliced.uri == run.uri
    assert sliced.read_selection(1).to_dict() == selection
    assert sliced.complete_features().digest == features
    assert accuracy.estimate(sliced).n == 5
    assert slices_of(sliced)["camera"] == CAMERAS
    assert verify(run.uri).sound
    with pytest.raises(OpaccError, match="no column 'ages'"):
        run_spec(content(pool, ["camera", "ages"]))
    with pytest.raises(SpecError, match=r"pool\.slices: 'tags' is list"):
        run_spec(content(pool, ["tags"]))
    assert Run.open(run.uri).spec.pool.slices == ["camera", "age"]


def test_a_table_of_examples_has_slices_beside_what_the_model_reads(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    rng = np.random.default_rng(1)
    for start in (0, 12):
        pixels = [rng.random(64).tolist() for _ in range(12)]
        own = table(range(start, start + 12)).append_column("pixels", pa.array(pixels))
        pq.write_table(own, tmp_path / "pool" / f"{start}.parquet")
    given = content(tmp_path / "pool", ["camera", {"age": [30, 60]}], extract={"batch_size": 8})
    given["pool"] |= {"format": "parquet", "columns": {"id": "key", "array": "pixels"}}
    given["model"] = {"function": "numpy_model:random"}
    with extracting_here():
        assert slices_of(run_spec(given)) == {"camera": CAMERAS, "age": AGES}


def test_a_table_whose_older_files_lack_a_column_has_gaps_there(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    place = tmp_path / "pool"
    names = ["key", "said", "camera"]
    deltalake.write_deltalake(str(place), table(range(6)).select(names[:2]))
    deltalake.write_deltalake(str(place), table(range(6, N)).select(names), mode="append", schema_mode="merge")
    given = content(place, ["camera"], pool={"format": "delta", "columns": {"id": "key", "prediction": "said"}})
    run = run_spec(given)
    found = dict(zip(run_ids(run), slices_of(run)["camera"], strict=True))
    assert found == {IDS[i]: CAMERAS[i] if i >= 6 else "(none)" for i in range(N)}
    with pytest.raises(DataError, match=r"has no column 'camara' \(did you mean 'camera'\?\)"):
        run_spec(given | {"pool": given["pool"] | {"slices": ["camara"]}})


def run_ids(run: Run) -> list[str]:
    with run_module.open_view(run, []) as view:
        return view.identify(np.arange(view.size))
