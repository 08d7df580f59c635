"""What every step keeps, whatever its kind."""

import datetime
import re
from decimal import Decimal

import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.run_steps import build
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply, blocks, rebatch
from overnight.tasks.rows.arrow_types import holds_files
from tests.contracts.steps.adapter import StepAdapter, applied, assert_same, made, named, reasons
from tests.contracts.steps.suite import STEPS
from tests.tasks.blocks import source_block

WHOLE_COLUMNS = "It moves whole columns: no value can make it fail"
NO_FAULTS = dict.fromkeys(("select_columns", "drop_columns", "rename_columns"), WHOLE_COLUMNS) | {
    "deduplicate": "Every value can be compared, a null with none"
}
ACROSS_ROWS = {"deduplicate": "Which row stays depends on the others by its very task"}


def test_every_kind_of_step_has_an_adapter() -> None:
    STEPS.assert_complete()


def expected_values(leaf: StepAdapter) -> list[dict]:
    return [row for rows in leaf.expected for row in rows]


def assert_rows(found: list[dict], leaf: StepAdapter) -> None:
    names = leaf.with_ids()["row_id"].to_pylist()
    assert [row["row_id"] for row in found] == leaf.ids(names)
    for row, expected in zip(found, expected_values(leaf), strict=True):
        assert_same({name: row[name] for name in expected}, expected)


@STEPS.promise("each row becomes the rows, ids and values of an independent reading; a row of none is filtered")
def test_values_are_those_of_an_independent_reading(leaf: StepAdapter) -> None:
    done = applied(leaf.step, leaf.with_ids())
    assert_rows(made(done), leaf)
    states = [blocks.LIVE if rows else blocks.FILTERED for rows in leaf.expected]
    assert done["__state"].to_pylist() == states


@STEPS.promise("rows alone, in chunks, and cut out of a longer table give what they give together", **ACROSS_ROWS)
def test_rows_do_not_depend_on_their_table(leaf: StepAdapter) -> None:
    rows = leaf.with_ids()
    alone = [row for place in range(len(rows)) for row in made(applied(leaf.step, rows.slice(place, 1)))]
    assert_rows(alone, leaf)
    chunks = pa.concat_tables([rows.slice(place, 1) for place in range(len(rows))])
    assert_rows(made(applied(leaf.step, chunks)), leaf)
    many = pa.concat_tables([rows] * 9)
    assert_rows(made(applied(leaf.step, many.slice(4 * len(rows), len(rows)))), leaf)
    assert_same(made(applied(leaf.step, many)), made(applied(leaf.step, rows)) * 9)


@STEPS.promise("no row at all gives no row and no error")
def test_no_rows_give_no_rows(leaf: StepAdapter) -> None:
    assert made(applied(leaf.step, leaf.with_ids()[:0])) == []


@STEPS.promise("work that is built once, and again from its JSON, gives the same again and leaves its input as it was")
def test_work_may_run_again(leaf: StepAdapter) -> None:
    block = source_block(0, 0, leaf.with_ids())
    before = made(block)
    works = [leaf.step.build(), build(leaf.step)]
    results = [made(apply.apply(block, "preprocess", work)) for work in (works[0], works[0], works[1])]
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])
    assert_same(made(block), before)


@STEPS.promise("a bad row is quarantined alone with its reason, and the rows beside it stay as they are", **NO_FAULTS)
def test_a_bad_row_costs_itself(leaf: StepAdapter) -> None:
    good, bad = leaf.with_ids(), leaf.broken_rows()
    done = applied(leaf.step, pa.concat_tables([good[:1], bad, good[1:]]))
    assert_rows(made(done), leaf)
    found = reasons(done)
    assert list(found) == bad["row_id"].to_pylist()
    for reason, (name, (_, pattern)) in zip(found.values(), leaf.broken.items(), strict=True):
        assert re.search(pattern, reason), (name, reason)
    assert done["__stage"].drop_null().unique().to_pylist() == ["preprocess"]


@STEPS.promise("a block whose rows all fail joins one in which none does", **NO_FAULTS)
def test_blocks_of_failures_join_others(leaf: StepAdapter) -> None:
    bad = applied(leaf.step, leaf.broken_rows())
    assert made(bad) == []
    joined = rebatch.joined([bad, applied(leaf.step, leaf.with_ids())])
    assert_rows(made(joined), leaf)
    assert len(reasons(joined)) == len(leaf.broken)


UTC = datetime.UTC
OTHERS = pa.table(
    {
        "o_decimal": pa.array([Decimal("1.10")], pa.decimal128(38, 2)),
        "o_time": pa.array([1], pa.timestamp("ns", "Europe/Berlin")),
        "o_early": pa.array([datetime.datetime(1, 1, 1)], pa.timestamp("us")),
        "o_name": pa.array(["x"]).dictionary_encode(),
        "o_nested": pa.array([[{"a": 1, "b": None}]], pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())]))),
        "o_map": pa.array([[("k", 2**63 - 1)]], pa.map_(pa.string(), pa.int64())),
        "o_null": pa.nulls(1),
        "o_empty": pa.array([""], pa.large_string()),
        "o_nan": pa.array([float("nan")], pa.float32()),
        "o_fixed": pa.array([b"0123456789abcdef"], pa.binary(16)),
        "o_vector": pa.array([[1, 2]], pa.list_(pa.float16(), 2)),
    }
)


def beside(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Return the rows with other columns, one value in all rows."""
    for name in others.column_names:
        values = pa.chunked_array([others[name].combine_chunks()] * len(rows), others[name].type)
        rows = rows.append_column(name, values)
    return rows


@STEPS.promise(
    "other columns keep their values and exact types", select_columns="It drops the columns that it does not name"
)
def test_other_columns_stay(leaf: StepAdapter) -> None:
    rows = beside(leaf.with_ids(), OTHERS)
    table, _ = blocks.live_rows(applied(leaf.step, rows))
    assert len(table) == len(expected_values(leaf)) > 0
    for name in OTHERS.column_names:
        assert table[name].type == OTHERS[name].type
        expected = OTHERS[name].cast(pa.int64()) if pa.types.is_timestamp(OTHERS[name].type) else OTHERS[name]
        found = table[name].cast(pa.int64()) if pa.types.is_timestamp(table[name].type) else table[name]
        assert_same(found.to_pylist(), expected.to_pylist() * len(table))


ONE_EACH = {kind: "It makes no rows of a row" for kind, leaf in STEPS.adapters.items() if leaf.suffixes is None}


@STEPS.promise(
    "bytes and pictures beside are not repeated for the rows made of one, but named, or kept as asked", **ONE_EACH
)
def test_heavy_columns_are_named(leaf: StepAdapter) -> None:
    heavy = pa.table({"o_bytes": pa.array([b"1"], pa.binary()), "o_file": [{"bytes": b"2", "path": "p"}]})
    rows = beside(leaf.with_ids(), heavy)
    done = applied(leaf.step, rows)
    assert {"o_bytes", "o_file"} <= set(blocks.left_out(done))
    assert all("o_bytes" not in row for row in made(done))
    kept = made(applied(leaf.step, rows, keep=["o_bytes"]))
    assert {row["o_bytes"] for row in kept} == {b"1"}


NO_FILES = {
    kind: "It reads no files" for kind, leaf in STEPS.adapters.items() if not holds_files(leaf.rows.schema[0].type)
}


@STEPS.promise("files are bytes, large bytes, or structs of bytes and a path, which may be null", **NO_FILES)
def test_files_come_in_any_column_that_holds_them(leaf: StepAdapter) -> None:
    [name] = leaf.rows.column_names
    rows = named(pa.concat_tables([leaf.rows, leaf.broken_rows().select([name])]))
    expected = applied(leaf.step, rows)
    contents = rows[name].to_pylist()
    structs = [*({"bytes": content, "path": "x"} for content in contents[:-1]), {"bytes": contents[-1], "path": None}]
    assert contents.index(None) > 0
    structs[contents.index(None)] = None
    for column in (pa.array(contents, pa.binary()), pa.array(structs)):
        found = applied(leaf.step, rows.set_column(1, name, column))
        assert_same(made(found), made(expected))
        assert reasons(found) == reasons(expected)


@STEPS.promise("it works on the rows that an earlier step made, and appends to their ids", **ACROSS_ROWS)
def test_it_works_on_rows_made_of_others(leaf: StepAdapter) -> None:
    rows = leaf.with_ids()
    twice = PythonStep(target="tests.contracts.steps.user_code:twice", explode=["copy"])
    block = applied(twice, rows, keep=rows.column_names)
    found = made(apply.apply(block, "preprocess", leaf.step.build(), keep=rows.column_names))
    names = []
    for place, name in enumerate(rows["row_id"].to_pylist()):
        inner = leaf.suffixes[place] if leaf.suffixes else [None] * len(leaf.expected[place])
        names += [f"{name}#{copy}" + ("" if end is None else f".{end}") for copy in (0, 1) for end in inner]
    assert [row["row_id"] for row in found] == names
    values = [row for rows in leaf.expected for _ in (0, 1) for row in rows]
    for row, expected in zip(found, values, strict=True):
        assert_same({name: row[name] for name in expected}, expected)


@STEPS.promise(
    "the columns that the settings show it makes, removes and keeps are those of a run",
    python="Only a run shows what code makes",
)
def test_the_effect_on_columns_is_true(leaf: StepAdapter) -> None:
    rows = leaf.with_ids().append_column("other", pa.array([1] * len(leaf.rows)))
    if leaf.step.column_effect().keeps is not None:
        rows = rows.drop_columns("other")
    effect = leaf.step.column_effect()
    table, _ = blocks.live_rows(applied(leaf.step, rows))
    before = {name for name in rows.column_names if effect.keeps is None or name in {*effect.keeps, "row_id"}}
    assert set(effect.reads) <= set(rows.column_names)
    optional = {"label", "score"}  # of lists that stand beside boxes
    makes = {name for name in effect.makes if name not in optional or name in table.column_names}
    assert set(table.column_names) == (before - set(effect.removes)) | makes


@STEPS.promise(
    "a column whose type it cannot read is named before any row is blamed",
    **dict.fromkeys(("select_columns", "drop_columns", "rename_columns"), WHOLE_COLUMNS),
    python="The code decides which values it takes",
    split_text="A value that is no text fails alone, as in the models that read texts",
)
def test_a_column_of_another_type_is_refused(leaf: StepAdapter) -> None:
    assert leaf.unusable
    for name, value in leaf.unusable:
        place = leaf.rows.column_names.index(name)
        rows = leaf.rows.set_column(place, name, pa.chunked_array([value] * len(leaf.rows), value.type))
        with pytest.raises(ContractError) as caught:
            applied(leaf.step, named(rows))
        assert caught.value.stage == "preprocess"
        assert name in str(caught.value)


@STEPS.promise("a column that is missing is named beside those that exist", python="Code raises its own errors")
def test_a_missing_column_is_named(leaf: StepAdapter) -> None:
    rows = named(pa.table({"something": [1, 2]}))
    with pytest.raises(ContractError) as caught:
        applied(leaf.step, rows)
    assert caught.value.stage == "preprocess"
    assert "something" in str(caught.value)
    missing = [*leaf.step.column_effect().reads, *leaf.step.column_effect().reads_in_sql]
    assert any(name in str(caught.value) for name in missing)
