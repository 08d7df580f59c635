"""Several output rows of one source row, held against a plain list of them, through every way a block is cut."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.tasks.errors import RowError
from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.worker import Worker
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.rows import apply, blocks, nested_rows, rebatch, result, tensors
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.write.merge.merge_parts import merge, published_schema
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream.staging_datasink import StagingDatasink
from tests.tasks.blocks import source_block
from tests.tasks.infer.test_worker import Counting
from tests.tasks.runs import make_run

Counts = list[int]


def files(counts: Counts) -> pa.Table:
    """A file a row, which is to become so many rows."""
    names = [f"{place}.pdf" for place in range(len(counts))]
    data = {"row_id": names, "uri": [f"/in/{name}" for name in names], "pages": pa.array(counts, pa.int64())}
    return source_block(0, 0, pa.table({**data, "pdf": pa.array([b"%PDF"] * len(counts), pa.large_binary())}))


def paged(live: pa.Table) -> result.Outcome:
    """`x` tells a page from all others; a negative number of pages is an error."""
    counts = live["pages"].to_pylist()
    if min(counts) < 0:
        raise ValueError("fewer than no pages")
    made_of = [row for row, count in enumerate(counts) for _ in range(count)]
    pages = [page for count in counts for page in range(count)]
    first = [int(name.split(".")[0]) for name in live["row_id"].to_pylist()]
    return result.several(
        {"x": [100 * first[of] + page for of, page in zip(made_of, pages, strict=True)]}, made_of, pages
    )


def table_of(block: pa.Table) -> list[dict[str, Any]]:
    return blocks.live_rows(block)[0].to_pylist()


def ends(block: pa.Table) -> dict[int, int]:
    return dict(zip(block["__row"].to_pylist(), block["__state"].to_pylist(), strict=True))


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=12))
def test_a_row_becomes_many_or_is_filtered_or_fails_alone(counts: Counts) -> None:
    block = apply.apply(files(counts), "preprocess", paged)
    expected = [
        {"row_id": f"{place}.pdf#{page}", "uri": f"/in/{place}.pdf", "pages": count, "x": 100 * place + page}
        for place, count in enumerate(counts)
        for page in range(count)
    ]
    assert table_of(block) == expected
    states = {-1: blocks.QUARANTINED, 0: blocks.FILTERED}
    assert ends(block) == {place: states.get(count, blocks.LIVE) for place, count in enumerate(counts)}
    assert blocks.counts(block).tolist() == [max(count, 1) for count in counts]


cuts = st.lists(st.integers(1, 6), min_size=12, max_size=12)


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=12), cuts, st.sets(st.integers(0, 1200)), st.integers(1, 7))
def test_however_blocks_are_cut_and_joined_a_source_row_ends_whole_and_once(
    counts: Counts, sizes: list[int], bad: set[int], length: int
) -> None:
    def model(live: pa.Table) -> result.Outcome:
        if bad & set(live["x"].to_pylist()):
            raise ValueError("not this one")
        return result.Outcome({"y": live["x"].to_numpy() + 1})

    block, pieces = apply.apply(files(counts), "preprocess", paged), []
    for size in sizes:
        pieces.append(block[:size])
        block = block[size:]
    pieces = [apply.apply(piece, "infer", model) for piece in rebatch.rebatch_rows(pieces, length) if len(piece)]
    done = rebatch.joined(pieces)
    assert done["__row"].to_pylist() == list(range(len(counts)))
    pages = {place: [100 * place + page for page in range(count)] for place, count in enumerate(counts)}
    failed = {place for place, made in pages.items() if bad & set(made) or counts[place] < 0}
    kept = [x for place, made in pages.items() if place not in failed for x in made]
    assert [(row["x"], row["y"]) for row in table_of(done)] == [(x, x + 1) for x in kept]
    assert {place for place, state in ends(done).items() if state == blocks.QUARANTINED} == failed
    assert {place for place, state in ends(done).items() if state == blocks.FILTERED} == {
        place for place, count in enumerate(counts) if count == 0
    }


@given(st.lists(st.integers(0, 9), max_size=10), st.integers(1, 6))
def test_a_block_ends_with_the_row_that_fills_it(counts: Counts, length: int) -> None:
    whole = apply.apply(files([*counts, 1]), "preprocess", paged)
    pieces = list(rebatch.rebatch_rows([whole[place : place + 1] for place in range(len(whole))], length))
    sizes = [blocks.counts(piece) for piece in pieces]
    assert all(each.sum() >= length > each[:-1].sum() for each in sizes[:-1])
    assert sizes[-1][:-1].sum() < length
    assert rebatch.joined(pieces)["__row"].to_pylist() == whole["__row"].to_pylist()


def test_rows_made_of_made_ones_are_named_after_them_and_keep_their_columns() -> None:
    pages = apply.apply(files([2, 1]), "preprocess", paged)

    def halved(live: pa.Table) -> result.Outcome:
        made_of = np.repeat(np.arange(len(live)), 2)
        return result.several({"half": ["a", "b"] * len(live)}, made_of, [0, 1] * len(live))

    chunks = table_of(apply.apply(pages, "preprocess", halved))
    assert [(row["row_id"], row["x"], row["half"]) for row in chunks] == [
        *(("0.pdf#0.0", 0, "a"), ("0.pdf#0.1", 0, "b"), ("0.pdf#1.0", 1, "a"), ("0.pdf#1.1", 1, "b")),
        *(("1.pdf#0.0", 100, "a"), ("1.pdf#0.1", 100, "b")),
    ]
    table = source_block(0, 4, pa.table({"row_id": ["a.csv#4"], "pages": [1]}))
    one = apply.apply(table, "preprocess", lambda live: result.several({"x": [1, 2]}, [0, 0], [0, 1]))
    assert [row["row_id"] for row in table_of(one)] == ["a.csv#4.0", "a.csv#4.1"]


def test_of_a_source_row_nothing_is_written_where_one_of_its_rows_fails_and_the_reason_names_that() -> None:
    def model(live: pa.Table) -> result.Outcome:
        failed = {row: RowError("too long") for row, x in enumerate(live["x"].to_pylist()) if x in (1, 2)}
        return result.Outcome({"y": live["x"]}, failed=failed)

    done = apply.apply(apply.apply(files([3, 2]), "preprocess", paged), "infer", model)
    assert [row["x"] for row in table_of(done)] == [100, 101]
    assert done["__error_message"][0].as_py() == "0.pdf#1: too long (2 of 3 rows made of this one failed)"
    assert done["row_id"][0].as_py() == "0.pdf"
    assert (done["__error_type"][0].as_py(), done["__stage"][0].as_py()) == ("RowError", "infer")


def test_a_filter_drops_made_rows_and_a_source_row_only_with_its_last_one() -> None:
    done = apply.apply(files([3, 2, 1]), "preprocess", paged)
    done = apply.apply(done, "preprocess", FilterRows(expression="x > 1 and x != 200").build())
    assert [row["x"] for row in table_of(done)] == [2, 100, 101]
    assert list(ends(done).values()) == [blocks.LIVE, blocks.LIVE, blocks.FILTERED]


def test_bytes_and_arrays_are_not_repeated_and_heavy_ones_that_a_step_made_are_dropped_in_the_end() -> None:
    def framed(live: pa.Table) -> result.Outcome:
        return result.several({"image": [np.full((2, 2), n, np.uint8) for n in range(4)]}, [0, 0, 1, 1], [0, 1, 0, 1])

    done = apply.apply(files([2, 2]), "preprocess", framed)
    assert list(table_of(done)[0]) == ["row_id", "uri", "pages", "image"]
    assert tensors.to_numpy(blocks.live_rows(done)[0]["image"])[3].tolist() == [[3, 3], [3, 3]]
    assert list(table_of(drop_heavy(done, []))[0]) == ["row_id", "uri", "pages"]
    assert list(table_of(drop_heavy(done, ["image"]))[0]) == ["row_id", "uri", "pages", "image"]
    assert blocks.left_out(drop_heavy(done, [])) == ["image", "pdf"]
    assert blocks.left_out(drop_heavy(done, ["image"])) == ["pdf"]


def test_vectors_are_repeated_and_of_heavy_columns_those_that_are_kept() -> None:
    block = files([2, 1])
    added = {"vector": np.eye(2), "matrix": np.ones((2, 2, 2)), "unseen": pa.nulls(2, tensors.TENSOR)}
    for name, values in added.items():
        block = blocks.with_column(block, name, tensors.to_arrow(values))
    made = blocks.live_rows(apply.apply(block, "preprocess", paged))[0]
    assert made.column_names == ["row_id", "uri", "pages", "vector", "unseen", "x"]
    assert tensors.to_numpy(made["vector"]).tolist() == [[1, 0], [1, 0], [0, 1]]
    kept = apply.apply(block, "preprocess", paged, keep=["pdf", "matrix"])
    rows = blocks.live_rows(kept)[0]
    assert rows["pdf"].to_pylist() == [b"%PDF"] * 3
    assert tensors.to_numpy(rows["matrix"]).shape == (3, 2, 2)
    assert blocks.left_out(kept) == []


def test_a_model_sees_made_rows_in_batches_of_its_size(tmp_path: Path) -> None:
    block = apply.apply(files([5, 1, 1, 9]), "preprocess", paged)
    worker = Worker(Link(Counting(batch_size=4)), make_run(tmp_path))
    made = [row for piece in worker(block) for row in table_of(piece)]
    assert [row["sum"] for row in made] == [row["x"] + 1 for row in table_of(block)]
    assert [row["count"] for row in made] == [4] * 4 + [1] + [4] * 8 + [3] * 3


def test_a_part_holds_all_rows_made_of_what_it_settles(tmp_path: Path) -> None:
    done = apply.apply(files([2, 0, 3, -1]), "preprocess", paged)
    run = make_run(tmp_path)
    StagingDatasink(run, "zstd", 10, ParquetSink(path="-")).write([done[:1], done[1:]], SimpleNamespace(task_idx=0))
    (record,) = staged_parts.read_records(run.parts)
    merged = row_ranges.merge([record.ranges])
    found = {
        state: row_ranges.rows_in_state(merged, state) for state in (blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED)
    }
    assert found == {blocks.LIVE: 2, blocks.FILTERED: 1, blocks.QUARANTINED: 1}
    with (run.parts / f"{record.name}.part").open() as file:
        table = pq.read_table(file)
    assert table["row_id"].to_pylist() == ["0.pdf#0", "0.pdf#1", "2.pdf#0", "2.pdf#1", "2.pdf#2"]
    assert table["__row"].to_pylist() == [0, 0, 2, 2, 2]
    assert nested_rows.COLUMN not in table.column_names


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=6, max_size=6).filter(any),
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(1, 6),
)
def test_attempts_that_cut_differently_and_overlap_publish_each_row_s_output_once_and_whole(
    counts: Counts, first: int, start: int, second: int
) -> None:
    block = apply.apply(files(counts), "preprocess", paged)
    with tempfile.TemporaryDirectory() as folder:
        for attempt, length, begin, end in (("a", first, 0, 4), ("b", second, start, 6), ("c", 6, 0, 6)):
            run = make_run(folder, attempt=attempt)
            for task, place in enumerate(range(begin, end, length)):
                piece = block[place : min(place + length, end)]
                marked = apply.apply(piece, "infer", lambda live, by=attempt: result.Outcome({"by": [by] * len(live)}))
                StagingDatasink(run, "zstd", 1, ParquetSink(path="-")).write([marked], SimpleNamespace(task_idx=task))
        records = staged_parts.read_records(run.parts)
        merged = row_ranges.merge([record.ranges for record in records])
        sizes = (run.parts, records, merged, published_schema(records), run.parts, "f", "", "zstd", 2**30)
        ready = merge(*sizes)
        found = pq.read_table(str(ready.files[0].place))
    assert row_ranges.rows_in_state(merged, blocks.LIVE) == sum(count > 0 for count in counts)
    wanted = [f"{place}.pdf#{page}" for place, count in enumerate(counts) for page in range(count)]
    assert sorted(found["row_id"].to_pylist()) == wanted
    assert ready.rows == len(wanted)
    made_by: dict[str, set[str]] = {}
    for row in found.to_pylist():
        made_by.setdefault(row["row_id"].split("#")[0], set()).add(row["by"])
    assert {len(attempts) for attempts in made_by.values()} <= {1}


def test_a_sample_is_cut_to_so_many_made_rows_and_knows_how_many_a_row_becomes() -> None:
    block = apply.apply(files([5, 0, 7, 3]), "preprocess", paged)
    assert blocks.rows_each(block) == pytest.approx(5)
    assert [row["x"] for row in table_of(rebatch.first_rows(block, 6))] == [0, 1, 2, 3, 4, 200]
