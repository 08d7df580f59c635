"""Blocks of the rows of a unit: their names, their columns, and the rows that are lost."""

import time

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import InputError, RowError
from overnight.tasks.ingest.reading.table_blocks import (
    chosen_columns,
    lost_unit,
    quarantined_rows,
    repeated,
    require_known,
    rest_of_unit,
    table_block,
)
from overnight.tasks.rows import blocks
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.state.read_plan import PENDING

UNIT = {"unit": 7, "path": "a", "uri": "s3://bucket/a", "first_row": 0, "rows": None}


@pytest.mark.parametrize(
    ("unit", "rows", "end"),
    [
        ({"rows": None}, ["a"], 1),
        ({"rows": 1}, ["a"], None),
        ({"rows": 3}, ["a#0", "a#1", "a#2"], None),
        ({"rows": 1, "first_row": 5}, ["a#5"], None),
        ({"rows": 2, "first_row": 5}, ["a#5", "a#6"], None),
        ({"rows": None, "first_row": 5}, ["a#5"], 6),
    ],
)
def test_a_lost_unit_loses_each_row_that_it_is_known_to_have(unit: dict, rows: list[str], end: int | None) -> None:
    found = [row for block in lost_unit(UNIT | unit, RowError("gone")) for row in block.to_pylist()]
    lost = [row for row in found if row["__state"] == blocks.QUARANTINED]
    assert [row["row_id"] for row in lost] == rows
    assert {(row["__unit"], row["__error_message"]) for row in lost} == {(7, "gone")}
    assert [row["__row"] for row in found if row["__state"] == blocks.END] == ([] if end is None else [end])


def test_many_lost_rows_come_in_blocks_of_bounded_size() -> None:
    found = list(rest_of_unit(UNIT, 10, 20_010, RowError("gone")))
    assert [len(block) for block in found] == [8192, 8192, 3616]
    assert [row for block in found for row in block["__row"].to_pylist()] == list(range(10, 20_010))


def test_a_block_keeps_columns_of_our_names_under_others_and_refuses_reserved_ones_and_twins() -> None:
    rows = pa.table({"uri": ["x"], "n": [1]})
    found = table_block(UNIT, np.array([4]), rows).to_pylist()[0]
    expected = {"row_id": "a#4", "uri": "s3://bucket/a", "source_uri": "x", "n": 1, "__unit": 7, "__row": 4}
    assert found | expected == found
    assert table_block(UNIT | {"published": True}, np.array([4]), rows)["uri"].to_pylist() == ["x"]
    for names in (["n", "n"], ["uri", "source_uri"], ["n", "__state"]):
        with pytest.raises(InputError):
            table_block(UNIT, np.array([4]), rows.rename_columns(names))


def test_the_names_of_many_columns_are_not_compared_with_each_other() -> None:
    names = [f"column_{number}" for number in range(20_000)]
    start = time.process_time()
    assert repeated([*names, "column_7", "column_3"]) == "column_3, column_7"
    assert time.process_time() - start < 1, "some milliseconds; seconds if each name is compared with each other"


def test_rows_of_a_unit_are_named_by_its_path_and_their_numbers() -> None:
    found = table_block(UNIT | {"path": "ü #/a"}, np.array([0, 7, 2**40]), pa.table({"n": [1, 2, 3]}))
    assert found["row_id"].to_pylist() == ["ü #/a#0", "ü #/a#7", f"ü #/a#{2**40}"]
    assert found["uri"].to_pylist() == [UNIT["uri"]] * 3
    assert found.schema.field("row_id").type == found.schema.field("uri").type == pa.string()


def test_chosen_columns_have_plain_types_in_the_order_of_the_job() -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("l", pa.large_list(pa.large_string())), ("d", pa.dictionary("int8", "string"))]
    )
    plain = {"n": pa.int64(), "l": pa.list_(pa.string()), "d": pa.string()}
    assert chosen_columns(schema, None) == chosen_columns(schema, []) == pa.schema(plain.items())
    assert chosen_columns(schema, ["d", "n"]) == pa.schema([("d", pa.string()), ("n", pa.int64())])
    with pytest.raises(InputError, match="no column x; the columns are n, l, d"):
        chosen_columns(schema, ["n", "x"])


def test_units_have_one_schema() -> None:
    assert PENDING.names[: len(UNITS)] == UNITS.names


def test_an_unknown_name_in_a_setting_is_refused_with_the_known_ones() -> None:
    require_known("types", ["b"], ["a", "b"])
    with pytest.raises(InputError, match=r"source\.types: no key c; the keys are a, b\."):
        require_known("types", ["d", "c", "a"], ["a", "b"], "key")


def test_bad_rows_have_the_names_that_the_source_gives_them_in_the_order_of_their_numbers() -> None:
    [block] = quarantined_rows(UNIT, {2: RowError("two"), 0: RowError("zero")}, ["k0", "k1", 22])
    rows = block.select(["row_id", "__row", "__error_message"]).to_pydict()
    assert rows == {"row_id": ["k0", "22"], "__row": [0, 2], "__error_message": ["zero", "two"]}
    assert list(quarantined_rows(UNIT, {}, ["k0"])) == []
