"""The contract of every pool format: found, cut, read, and refused in one sentence.

A new format is under test once ``WRITERS`` of ``written_pools.py`` has a function that writes an example of it.
"""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tables import parquet
from written_pools import SIZE, WRITERS, Written, small_table

from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.extract.table_columns import try_slices
from opacc_ray.lake.examples import BadItem, Columns, Example, Plan, Rules, Shard
from opacc_ray.lake.formats import FORMATS, find_format, has_rows, place_of
from opacc_ray.lake.pools import newest_version, plan_shards, planned_ids, read_examples, read_rows
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.spec import PoolSpec, parse_spec
from opacc_ray.spec.pool_spec import ColumnsSpec


class Contracted(NamedTuple):
    """A pool that was written, and how it is read."""

    format: str
    store: Store
    rules: Rules
    written: Written

    def plan(self, shard_size: int = 5, **changes: Any) -> Plan:
        return plan_shards(self.store, self.format, shard_size, rules=self.rules._replace(**changes))

    def items(self, shard: Shard) -> list[Example | BadItem]:
        """Return the examples of a shard and its bad items."""
        return [*read_examples(self.store, self.format, shard, self.rules)]

    def ids(self, shard: Shard) -> list[str]:
        """Return the ids of a shard's examples, or of its rows if no model reads them."""
        if self.rules.columns.features:
            batches = read_rows(self.store, self.format, shard, self.rules)
            return [name for batch in batches for name in batch.columns["id"].to_pylist()]
        return [item.id for item in self.items(shard) if isinstance(item, Example)]

    def complaint(self, plan: Callable[[], Plan]) -> str:
        """Return the first error or bad item of a pool; empty if there is none."""
        try:
            for shard in plan().shards:
                items = [] if self.rules.columns.features else self.items(shard)
                bad = [f"{item.id}: {item.reason}" for item in items if isinstance(item, BadItem)]
                if bad:
                    return bad[0]
                self.ids(shard)
        except OpaccError as error:
            return str(error)
        return ""

    def files(self) -> list[Path]:
        """Return the files that hold examples."""
        place = Path(self.store.uri)
        return sorted(file for file in place.rglob(f"*{self.written.suffix}") if file.is_file())


@pytest.fixture(params=FORMATS)
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Contracted:
    name = request.param
    assert name in WRITERS, (
        f"add a function that writes an example of the format {name!r} to WRITERS of tests/written_pools.py"
    )
    written = WRITERS[name](tmp_path / "pool")
    given = dict(written.columns)
    features = tuple((key, (given.pop(key),)) for key in ("prediction",) if key in given)
    arrays = (given.pop("array"),) if "array" in given else ()
    place = place_of(name, written.uri)
    rules = Rules(columns=Columns(array=arrays, features=features, **given), file=place.file, only=place.only)
    return Contracted(name, open_store(place.folder), rules, written)


def spec_of(pool: Contracted, **keys: Any) -> PoolSpec:
    return PoolSpec(**{"uri": pool.written.uri, "format": pool.format, "columns": pool.written.columns} | keys)


def test_every_example_is_read_once_under_a_unique_id(pool: Contracted) -> None:
    plan = pool.plan()
    ids = [name for shard in plan.shards for name in pool.ids(shard)]
    assert len(ids) == len(set(ids)) == SIZE
    assert plan.num_examples in (None, SIZE)


@pytest.mark.parametrize("shard_size", [1, 7, 1000])
def test_ids_and_their_order_do_not_depend_on_the_shards(pool: Contracted, shard_size: int) -> None:
    def ids(size: int) -> list[str]:
        return [name for shard in pool.plan(size).shards for name in pool.ids(shard)]

    assert ids(shard_size) == ids(5)


def test_a_plan_depends_on_the_listing_alone(pool: Contracted) -> None:
    assert pool.plan() == pool.plan()


def test_the_example_of_the_writer_is_a_valid_spec(pool: Contracted) -> None:
    assert spec_of(pool).format == pool.format


def test_a_file_that_is_cut_short_is_named(pool: Contracted) -> None:
    file = pool.files()[-1]
    file.write_bytes(pool.written.damage(file.read_bytes()))
    complaint = pool.complaint(pool.plan)
    assert file.name in complaint, (
        "reading the damaged file must raise DataError that names it; if half of a file is a smaller whole one, as of "
        "JSON lines, give Written(damage=…), which makes one that no reader may overlook"
    )
    assert "\n" not in complaint


def test_a_file_whose_first_bytes_are_damaged_is_named(pool: Contracted) -> None:
    """Reading raises no error of a library, such as JSONDecodeError: it would end the run of the whole pool."""
    file = pool.files()[0]
    content = file.read_bytes()
    file.write_bytes(b"\xff\0{" * 8 + content[24:])
    assert file.name in pool.complaint(pool.plan)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Change a byte, cut the end off or leave some bytes out, at a random place or where a footer is."""
    place = rng.choice([rng.randrange(len(content)), max(0, len(content) - rng.randrange(1, 400))])
    kept = place + rng.choice([0, 1, rng.randrange(1, 50), len(content)])
    return content[:place] + (bytes([rng.randrange(256)]) if kept == place + 1 else b"") + content[kept:]


@pytest.mark.slow
def test_damage_anywhere_is_one_sentence_or_a_pool(pool: Contracted) -> None:
    file, rng = pool.files()[0], random.Random(5)
    content = file.read_bytes()
    said = []
    for _ in range(40):
        file.write_bytes(damaged(content, rng))
        said.append(pool.complaint(pool.plan))  # any other error ends this test
    assert not any("\n" in text for text in said)


def test_a_file_that_changed_after_the_listing_is_refused(pool: Contracted) -> None:
    plan = pool.plan()
    file = pool.files()[-1]
    file.write_bytes(file.read_bytes() + b"\0")
    complaint = pool.complaint(lambda: plan)
    assert file.name in complaint
    assert re.search("has changed since the pool was listed|is not (a )?valid", complaint)


def test_a_pool_without_files_is_refused(pool: Contracted, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    rules = pool.rules._replace(file=None if pool.rules.file is None else f"{tmp_path}/empty/none.csv")
    with pytest.raises(DataError, match=r"check pool\.uri") as caught:
        plan_shards(open_store(f"{tmp_path}/empty"), pool.format, 5, rules=rules)
    assert "\n" not in str(caught.value)


def test_a_column_that_the_files_lack_is_refused(pool: Contracted) -> None:
    if "id" not in find_format(pool.format).TRAITS.columns:
        pytest.skip("the format has no columns in its files")
    with pytest.raises(DataError, match=r" has no column 'unknown'; it has .*\bid\b") as caught:
        pool.plan(columns=pool.rules.columns._replace(id="unknown"))
    assert "\n" not in str(caught.value)


def test_columns_of_slices_are_planned_and_read_and_change_no_shard(pool: Contracted) -> None:
    if not hasattr(find_format(pool.format), "batches"):
        with pytest.raises(ValueError, match=r"sample_of names the column 'pred', and .* has no columns"):
            spec_of(pool, slices=["pred"])
        return
    source = spec_of(pool, slices=["pred", {"pred_": [3]}])
    plan = pool.plan(slices=("pred",))
    assert [shard.name for shard in plan.shards] == [shard.name for shard in pool.plan().shards]
    assert [pool.ids(shard) for shard in plan.shards] == [pool.ids(shard) for shard in pool.plan().shards]
    assert try_slices(source.model_copy(update={"slices": ["pred"]}), plan) == "pred"
    with pytest.raises(DataError, match=r" has no column 'pred_' \(did you mean 'pred'\?\); it has .*\bid\b"):
        pool.plan(slices=source.slice_columns)


def test_a_filter_keeps_its_rows(pool: Contracted) -> None:
    if not has_rows(pool.format):
        pytest.skip("the format has no filter")
    filtered = pool._replace(rules=pool.rules._replace(filter="pred >= 20 or pred = 3"))
    plan = filtered.plan()
    ids = [name for shard in plan.shards for name in filtered.ids(shard)]
    assert sorted(ids) == ["e20", "e21", "e22", "e23", "e3"]
    assert plan.num_examples is None
    with pytest.raises(SpecError, match=r"pool\.filter: "):
        pool.plan(filter="pred >")


def test_a_format_with_versions_keeps_the_first_one(pool: Contracted) -> None:
    versioned = "version" in find_format(pool.format).TRAITS.keys
    newest = newest_version(pool.store, pool.format, pool.rules)
    assert (newest is not None) == versioned
    if versioned:
        assert pool.plan().version == newest


def test_planned_ids_are_those_that_are_read(pool: Contracted) -> None:
    for shard in pool.plan().shards:
        assert planned_ids(pool.format, shard) in (None, tuple(pool.ids(shard)))


# -- specs -----------------------------------------------------------------------------------------------


VALUES = {
    "filter": "pred < 4",
    "split": "test",
    "version": 1,
    "timestamp": "2026-01-31",
    "catalog": "unity",
    "table": "t",
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_spec_takes_the_columns_of_the_format_and_no_others(name: str) -> None:
    traits = find_format(name).TRAITS
    needed = "uri" if "uri" in traits.needs else next(iter(traits.needs), None)
    for key in ColumnsSpec.model_fields:
        columns = ({needed: "two"} if needed and key not in traits.needs else {}) | {key: "one"}
        if key in traits.columns:
            assert getattr(PoolSpec(uri="x", format=name, columns=columns).columns, key) in ("one", ["one"])
        else:
            remedy = "set format: features" if key == "prediction" else "remove it"
            with pytest.raises(ValueError, match=f"columns.{key} is not supported for format {name}, .*; {remedy}"):
                PoolSpec(uri="x", format=name, columns={key: "one"})


@pytest.mark.parametrize("name", FORMATS)
def test_a_spec_takes_the_optional_keys_of_the_format_and_no_others(name: str) -> None:
    traits = find_format(name).TRAITS
    content = {"uri": "x", "format": name, "columns": {traits.needs[0]: "one"} if traits.needs else {}}
    for key in VALUES:
        if key in traits.keys or (key == "filter" and has_rows(name)):
            given = {"catalog": "unity", "table": "t"} if key in ("catalog", "table") else {key: VALUES[key]}
            assert getattr(PoolSpec(**content, **given), key) == VALUES[key]
        else:
            with pytest.raises(ValueError, match=f"{key} is only supported for .*, and format is {name}; remove it"):
                PoolSpec(**content, **{key: VALUES[key]})


@pytest.mark.parametrize("name", [name for name in FORMATS if find_format(name).TRAITS.needs])
def test_a_spec_without_a_column_that_the_format_needs_is_refused(name: str) -> None:
    content = {
        "name": "a",
        "pool": {"uri": "x", "format": name},
        "sample": {"method": "srs", "budget": 1},
        "output": "o",
    }
    needs = find_format(name).TRAITS.needs
    complaint = f"columns names no {' and no '.join(needs)}; add {' or '.join(needs)}: a column's name"
    with pytest.raises(SpecError, match=re.escape(complaint)):
        parse_spec(content, "spec.yaml")


def test_a_folder_of_lines_of_json_or_csv_is_a_pool_of_features(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jsonl").write_text('{"id": "x", "pred": 1}\n{"id": "y", "pred": 2}\n')
    (tmp_path / "2.csv").write_text("id,pred,more\nz,3,4\n")
    store, rules = open_store(str(tmp_path)), Rules(columns=Columns(id="id", features=(("prediction", ("pred",)),)))
    plan = plan_shards(store, "features", 100, rules=rules._replace(filter="pred > 1"))
    rows = [batch.columns.to_pylist() for shard in plan.shards for batch in read_rows(store, "features", shard, rules)]
    assert sorted(row["id"] for part in rows for row in part) == ["x", "y", "z"]
    (tmp_path / "3.csv").write_text("id,other\nz,3\n")
    plan = plan_shards(store, "features", 100, rules=rules)
    with pytest.raises(DataError, match=r"3\.csv has no column 'pred'; it has id, other"):
        [*read_rows(store, "features", plan.shards[1], rules)]
    (tmp_path / "4.parquet").write_bytes(parquet(small_table(0, 3)))
    plan = plan_shards(store, "features", 100, rules=rules)
    assert [entry.key for entry in plan.entries] == ["4.parquet"]
    assert str(plan.ignored[0]) == "3 x CSV or JSON lines (2.csv, 3.csv, a/1.jsonl)"
