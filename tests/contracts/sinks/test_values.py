"""What is published reads back equal by the reference library, or is refused before the work."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import read_json
from overnight.tasks.write.merge.json_values import json_texts
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.stream.rows_to_publish import rows_to_publish
from tests.contracts.sinks.adapters import POSTGRESQL, Adapter
from tests.contracts.sinks.publications import create_schema, numbered, publish_parts
from tests.contracts.sinks.suite import SINKS
from tests.contracts.sinks.values import ROWS, canonical, columns, facts

COLUMNS = columns()


def test_every_sink_has_an_adapter() -> None:
    SINKS.assert_complete()


def staged(leaf: Adapter, sink: Sink, place: Path, found: dict[str, pa.Array]) -> tuple[pa.Table, dict[int, str]]:
    """The rows as the stream stages them, and the reasons of the quarantined ones."""
    table = pa.table({**found, **leaf.beside(ROWS), "row_id": [f"a#{row}" for row in range(ROWS)]})
    block = blocks.with_hidden(table, np.zeros(ROWS, int), np.arange(ROWS))
    rows, _, block = rows_to_publish(block, numbered(place, 1), sink)
    errors = block["__error_message"].to_pylist()
    return rows.drop_columns(["row_id"]), {row: error for row, error in enumerate(errors) if error}


@SINKS.promise("every value of every type reads back equal by the reference library")
def test_every_value_of_every_type_reads_back_equal(leaf: Adapter, tmp_path: Path) -> None:
    reads_back(leaf, tmp_path)


def test_every_value_of_every_type_reads_back_equal_from_postgresql(postgres: str, tmp_path: Path) -> None:
    create_schema(POSTGRESQL.sink(tmp_path))
    reads_back(POSTGRESQL, tmp_path)


def reads_back(leaf: Adapter, place: Path) -> None:
    sink, run = leaf.sink(place), numbered(place, 1)
    known = {name: found for name, found in COLUMNS.items() if name not in {*leaf.refused, *leaf.lost_rows}}
    rows, errors = staged(leaf, sink, place, {**known, "nothing": pa.nulls(ROWS)})
    assert errors == {}
    files = publish_parts(run, sink, {name: rows[name] for name in rows.column_names})
    found = leaf.read(run, sink, files)
    assert len(known) > 80
    for name, column in known.items():
        cells = [canonical(cell, column.type) for cell in found[name]]
        assert same_zeros(cells, leaf) == same_zeros(facts(column), leaf), name
    assert set(found.get("nothing", [None])) <= {None}


@SINKS.promise("the sink itself reads every value that it published, by its receipt, as `show` and `diff` do")
def test_the_sink_itself_reads_every_value_that_it_published(leaf: Adapter, tmp_path: Path) -> None:
    sink, run = leaf.sink(tmp_path), numbered(tmp_path, 1)
    known = {name: found for name, found in COLUMNS.items() if name not in {*leaf.refused, *leaf.lost_rows}}
    rows, _ = staged(leaf, sink, tmp_path, {**known, "nothing": pa.nulls(ROWS)})
    publish_parts(run, sink, {name: rows[name] for name in rows.column_names})
    receipt = read_json(run.ledger / "receipt.json")
    assert receipt is not None
    found = pa.concat_tables(list(sink.read(run.sink, receipt, None)), promote_options="default").sort_by("row_id")
    assert found["row_id"].to_pylist() == [f"a#{row}" for row in range(ROWS)]
    assert set(found.column_names) >= {"row_id", *known}
    assert (run.partition_column in found.column_names) == (leaf.kind == "iceberg")
    for name, column in known.items():
        cells = [canonical(cell, pa.binary() if name == "uuid" else column.type) for cell in found[name]]
        assert same_zeros(cells, leaf) == same_zeros(facts(column), leaf), name
    [*some] = sink.read(run.sink, receipt, ["int64", "row_id"])
    assert {tuple(table.column_names) for table in some} == {("int64", "row_id")}


def same_zeros(cells: list[Any], leaf: Adapter) -> list[Any]:
    """SQLite has no negative zero; the two are equal as numbers."""
    return [0.0 if cell in ("-0.0", "0.0") else cell for cell in cells] if leaf.kind == "sql" else cells


@SINKS.promise("a type that the table cannot hold is refused before the first row, with column, type and remedy")
def test_a_type_that_the_table_cannot_hold_is_refused_before_the_first_row(leaf: Adapter, tmp_path: Path) -> None:
    sink, run = leaf.sink(tmp_path), numbered(tmp_path, 1)
    for name in leaf.refused:
        beside = [pa.field(other, pa.array(found).type) for other, found in leaf.beside(ROWS).items()]
        schema = pa.schema([pa.field("row_id", pa.string()), pa.field(name, COLUMNS[name].type), *beside])
        with pytest.raises(ContractError) as refused:
            sink.refuse_columns(run, schema)
        inner = [str(kind).split("<")[0] for kind in kinds_within(COLUMNS[name].type)]
        assert name in str(refused.value)
        assert any(word in str(refused.value) for word in inner)
        assert any(word in str(refused.value) for word in ("Return", "Cast"))


def kinds_within(kind: pa.DataType) -> list[pa.DataType]:
    inner = [] if pa.types.is_union(kind) else [kind.field(place).type for place in range(kind.num_fields)]
    return [kind, *(each for part in inner for each in kinds_within(part))]


REASON = dict.fromkeys(("parquet", "jsonl", "csv", "images", "lance"), "its format holds every value")


@SINKS.promise("a value that the table would change is quarantined alone, with its column", **REASON)
def test_a_value_that_the_table_would_change_is_quarantined_alone(leaf: Adapter, tmp_path: Path) -> None:
    quarantines(leaf, tmp_path)


def test_a_value_that_postgresql_would_change_is_quarantined_alone(tmp_path: Path) -> None:
    quarantines(POSTGRESQL, tmp_path)


def quarantines(leaf: Adapter, place: Path) -> None:
    for name, lost in leaf.lost_rows.items():
        rows, errors = staged(leaf, leaf.sink(place), place, {name: COLUMNS[name]})
        assert set(errors) == lost, name
        assert all(repr(name) in reason for reason in errors.values())
        assert facts(rows[name]) == [fact for row, fact in enumerate(facts(COLUMNS[name])) if row not in lost]


def test_a_slice_and_an_empty_column_become_json_like_the_whole() -> None:
    for name in set(COLUMNS) - {"interval", "union", "string_view", "binary_view", "run_ends", "views"}:
        column = pa.chunked_array([COLUMNS[name]])
        assert json_texts(column[2:5]).to_pylist() == json_texts(column).to_pylist()[2:5], name
        assert len(json_texts(column[:0])) == 0
