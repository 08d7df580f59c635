"""Every row once, with its values: a source gives what the format's own library reads."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.take_manifest import first_units
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.write.merge.output_schema import common_schema, conform, publishable
from tests.contracts.sources.adapter import ROWS, Adapter
from tests.contracts.sources.reading import canonical, lines, listed, read_all
from tests.contracts.sources.suite import SOURCES, TOPICS, promise


def test_every_kind_of_source_is_held_to_the_promises():
    SOURCES.assert_complete()
    for kind, leaf in SOURCES.adapters.items():
        assert set(leaf.not_applicable) <= TOPICS, kind


@promise("rows", "every row comes once, numbered through its file")
def test_every_row_comes_once_and_is_numbered(leaf: Adapter, tmp_path: Path):
    paths = [leaf.write(tmp_path, name, leaf.rows(ROWS, first)) for name, first in (("a", 0), ("b", ROWS))]
    read = read_all(leaf.source(tmp_path))
    assert sorted(read.good) == sorted(row for path in paths for row in leaf.row_ids(path, tmp_path))
    assert lines(read.data()) == lines(leaf.expected(tmp_path))
    assert not read.bad


@promise("values", "every value of every type is the one that the format's own library reads")
def test_values_are_those_of_the_format_s_own_library(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.values)
    read = read_all(leaf.source(tmp_path))
    assert not read.bad
    assert lines(read.data()) == lines(leaf.expected(tmp_path))


@promise("types", "a column has one type in the blocks of all files")
def test_a_column_has_one_type_in_all_blocks(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.values)
    leaf.write(tmp_path, "b", leaf.values[:1])
    leaf.write(tmp_path, "c", leaf.values[1:])
    read = read_all(leaf.source(tmp_path))
    fields = {(field.name, str(field.type)) for schema in read.schemas for field in schema}
    assert len(fields) == len({name for name, _ in fields})
    assert not read.bad


@promise("blocks", "blocks can be filtered, joined with others that lack their columns, and written")
def test_blocks_survive_what_a_run_does_to_them(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.values)
    source, units, schema = listed(leaf.source(tmp_path))
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    for block in source.rows(pending, schema):
        if not set(block["__state"].to_pylist()) <= {blocks.LIVE}:
            continue
        rows = publishable(blocks.visible(block))
        chosen = rows.take(pa.array(range(0, len(rows), 2), pa.uint16()))
        others = rows.select(["row_id"])
        whole = conform(rebatch.joined([chosen, others]), common_schema([chosen.schema, others.schema]))
        pq.write_table(whole, tmp_path / "written.parquet")
        read = pq.read_table(tmp_path / "written.parquet", partitioning=None)
        assert read["row_id"].to_pylist() == [*chosen["row_id"].to_pylist(), *others["row_id"].to_pylist()]


@promise("none", "a file without rows is no error and adds no row")
def test_a_file_without_rows_adds_none(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.rows(0))
    leaf.write(tmp_path, "b", leaf.rows())
    read = read_all(leaf.source(tmp_path))
    assert (len(read.good), read.bad) == (ROWS, {})


@promise("new column", "a column that only some files have is null in the rows of the others")
def test_a_column_of_some_files_is_null_in_the_others(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.rows())
    leaf.write(tmp_path, "b", leaf.rows().append_column("more", pa.array(["x"] * ROWS)))
    read = read_all(leaf.source(tmp_path))
    assert [row.get("more") is None for row in read.good.values()].count(True) == ROWS
    assert len(read.good) == 2 * ROWS
    assert not read.bad


@promise("columns", "the columns that the job chooses are read, and no others")
def test_the_chosen_columns_are_read(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.rows())
    read = read_all(leaf.source(tmp_path, columns=["text"]))
    assert lines(read.data()) == lines({"text": row["text"]} for row in leaf.expected(tmp_path))

    with contextlib.suppress(InputError):
        assert not read_all(leaf.source(tmp_path, columns=["nowhere"])).good


@promise(
    "reserved",
    "a column named like one of Overnight's own keeps its values",
    "a file has no columns of its own",
    job="the names row_id and uri are those that Overnight gave the other job's rows",
    uris="the column uri of a list is the address of its row",
)
def test_a_column_with_one_of_our_names_keeps_its_values(leaf: Adapter, tmp_path: Path):
    rows = leaf.rows()
    leaf.write(tmp_path, "a", rows.rename_columns(["uri", "row_id"]))
    read = read_all(leaf.source(tmp_path))
    assert len({canonical(row["source_row_id"]) for row in read.good.values()}) == len(read.good) == ROWS
    assert len({canonical(row["source_uri"]) for row in read.good.values()}) == ROWS


@promise("where", "the rows that a filter selects are read, and no others")
def test_the_selected_rows_are_read(leaf: Adapter, tmp_path: Path):
    leaf.write(tmp_path, "a", leaf.rows())
    source = leaf.source(tmp_path, where=leaf.where)
    read = read_all(source)
    rows = leaf.expected(tmp_path)
    chosen = [row for row in rows if all(str(row[name]) == value for name, value in leaf.where.items())]
    assert 0 < len(chosen) < len(rows)
    assert lines(read.data()) == lines(chosen)


@promise("sample", "a sample reads the first rows with the ids and values that a run reads")
def test_a_sample_reads_rows_of_the_whole(leaf: Adapter, tmp_path: Path):
    for name, first in (("a", 0), ("b", ROWS)):
        leaf.write(tmp_path, name, leaf.rows(ROWS, first))
    source = leaf.source(tmp_path)
    whole = read_all(source)
    for count in (1, ROWS // 2, ROWS + 1):
        fixed, units, schema = first_units(source, "all", count)
        sample = read_all(fixed, units, schema)
        assert len(sample.good) == count
        assert lines(sample.good.values()) == lines(whole.good[name] for name in sample.good)


@promise("resume", "each unit read alone, in any order, gives the rows that all of them give together")
def test_a_unit_read_alone_gives_the_same_rows(leaf: Adapter, tmp_path: Path):
    for name, first in (("a", 0), ("b", ROWS), ("c", 2 * ROWS)):
        leaf.write(tmp_path, name, leaf.rows(ROWS, first))
    source, units, schema = listed(leaf.source(tmp_path))
    whole = read_all(source, units, schema)
    alone = [read_all(source, units[place : place + 1], schema) for place in reversed(range(len(units)))]
    assert lines(row for read in alone for row in read.good.values()) == lines(whole.good.values())
    assert len(whole.good) == 3 * ROWS
