"""Several output rows of one source row, held against a plain list of them, through every way a block is cut."""

import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.tasks.errors import RowError
from overnight.tasks.infer.link import Link, drop_heavy
from overnight.tasks.infer.predictor import Predict, Predictor
from overnight.tasks.rows import apply, blocks, nested_rows, rebatch, result, tensors
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.workers.row_isolation import TOGETHER
from overnight.tasks.write.merge.merge_parts import merge, published_schema
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream.staging import write_part
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

Counts = list[int]


def paged(live: pa.Table) -> result.Outcome:
    """`x` tells a page from all others; a negative number of pages is an error."""
    counts = live["pages"].to_pylist()
    if min(counts) < 0:
        raise ValueError("fewer than no pages")
    made_of = [row for row, count in enumerate(counts) for _ in range(count)]
    pages = [page for count in counts for page in range(count)]
    first = [int(name.split(".")[0]) for name in live["row_id"].to_pylist()]
    x = [100 * first[of] + page for of, page in zip(made_of, pages, strict=True)]
    return result.several({"x": x}, made_of, pages)


def pages_of(counts: Counts, **columns: Any) -> pa.Table:
    """Files, each of which became so many rows."""
    names = [f"{place}.pdf" for place in range(len(counts))]
    files = {"pdf": pa.array([b"%PDF"] * len(counts), pa.large_binary())}
    rows = pa.table({"row_id": names, "pages": pa.array(counts, pa.int64()), **files, **columns})
    return apply.apply(source_block(0, 0, rows), "preprocess", paged)


def rows_of(block: pa.Table) -> list[dict[str, Any]]:
    return blocks.live_rows(block)[0].to_pylist()


def states(block: pa.Table) -> list[int]:
    return block["__state"].to_pylist()


@settings(max_examples=50)
@given(
    st.lists(st.integers(-1, 5), min_size=1, max_size=12),
    st.lists(st.integers(1, 6), min_size=12, max_size=12),
    st.sets(st.integers(0, 1200)),
    st.integers(1, 7),
)
def test_however_blocks_are_cut_and_joined_a_source_row_ends_whole_and_once(
    counts: Counts, sizes: list[int], bad: set[int], length: int
) -> None:
    def model(live: pa.Table) -> result.Outcome:
        if bad & set(live["x"].to_pylist()):
            raise ValueError("not this one")
        return result.Outcome({"y": live["x"].to_numpy() + 1})

    block, pieces = pages_of(counts), []
    assert blocks.counts(block).tolist() == [max(count, 1) for count in counts]
    for size in sizes:
        pieces.append(block[:size])
        block = block[size:]
    pieces = [
        apply.apply(piece, "infer", model) for piece in rebatch.rebatch_rows(pieces, lambda: length) if len(piece)
    ]
    done = rebatch.joined(pieces)
    assert done["__row"].to_pylist() == list(range(len(counts)))
    expected, ends = [], []
    for place, count in enumerate(counts):
        made = [100 * place + page for page in range(count)]
        is_lost = count < 0 or bool(bad & set(made))
        ends.append(blocks.QUARANTINED if is_lost else blocks.LIVE if made else blocks.FILTERED)
        if not is_lost:
            expected += [{"row_id": f"{place}.pdf#{x % 100}", "pages": count, "x": x, "y": x + 1} for x in made]
    assert rows_of(done) == expected
    assert states(done) == ends


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), max_size=10), st.integers(1, 6))
def test_a_block_ends_with_the_row_that_fills_it(counts: Counts, length: int) -> None:
    whole = pages_of([*counts, 1])
    pieces = list(rebatch.rebatch_rows([whole[place : place + 1] for place in range(len(whole))], lambda: length))
    sizes = [blocks.counts(piece) for piece in pieces]
    assert all(each.sum() >= length > each[:-1].sum() for each in sizes[:-1])
    assert sizes[-1][:-1].sum() < length
    assert rebatch.joined(pieces)["__row"].to_pylist() == whole["__row"].to_pylist()


def test_of_a_source_row_nothing_is_written_where_one_of_its_rows_fails_and_the_reason_names_that() -> None:
    def model(live: pa.Table) -> result.Outcome:
        failed = {row: RowError("too long") for row, x in enumerate(live["x"].to_pylist()) if x in (1, 2)}
        return result.Outcome({"y": live["x"]}, failed=failed)

    done = apply.apply(pages_of([3, 2]), "infer", model)
    assert [row["x"] for row in rows_of(done)] == [100, 101]
    reason = "0.pdf#1: too long (2 of 3 rows made of this one failed)"
    names = ["row_id", "__error_message", "__error_type", "__stage"]
    assert list(done.select(names).to_pylist()[0].values()) == ["0.pdf", reason, "RowError", "infer"]


def test_a_filter_drops_made_rows_and_a_source_row_only_with_its_last_one() -> None:
    keep = np.array([False, False, True, True, True, False])
    done = apply.apply(pages_of([3, 2, 1]), "preprocess", lambda live: result.Outcome(keep=keep))
    assert [row["x"] for row in rows_of(done)] == [2, 100, 101]
    assert states(done) == [blocks.LIVE, blocks.LIVE, blocks.FILTERED]


def test_vectors_are_repeated_and_heavy_columns_only_as_asked() -> None:
    arrays = {"vector": np.eye(2), "matrix": np.ones((2, 2, 2)), "unseen": pa.nulls(2, tensors.TENSOR)}
    columns = {name: tensors.to_arrow(values) for name, values in arrays.items()}
    made = blocks.live_rows(pages_of([2, 1], **columns))[0]
    assert made.column_names == ["row_id", "pages", "vector", "unseen", "x"]
    assert tensors.to_numpy(made["vector"]).tolist() == [[1, 0], [1, 0], [0, 1]]


def test_heavy_columns_that_a_step_made_are_dropped_in_the_end() -> None:
    def framed(live: pa.Table) -> result.Outcome:
        return result.several({"image": [np.full((2, 2), n, np.uint8) for n in range(4)]}, [0, 0, 1, 1], [0, 1, 0, 1])

    done = apply.apply(pages_of([1, 1]), "preprocess", framed)
    assert tensors.to_numpy(blocks.live_rows(done)[0]["image"])[3].tolist() == [[3, 3], [3, 3]]
    for keep, left_out in (([], ["image", "pdf"]), (["image"], ["pdf"])):
        kept = drop_heavy(done, keep)
        assert list(rows_of(kept)[0]) == ["row_id", "pages", "x", *keep]
        assert blocks.left_out(kept) == left_out


class Counting(Predictor):
    """Tells the size of its batch."""

    kind: Literal["counting"] = "counting"

    def load(self) -> Predict:
        return lambda batch: {"count": np.full(len(batch["x"]), len(batch["x"])), "sum": batch["x"] + 1}


def test_a_model_sees_made_rows_in_batches_of_its_size(tmp_path: Path) -> None:
    block = pages_of([5, 1, 1, 9])
    worker = Link(Counting(batch_size=4)).load(make_run(tmp_path))
    made = [row for piece in worker.on([block], TOGETHER) for row in rows_of(piece)]
    assert [row["sum"] for row in made] == [row["x"] + 1 for row in rows_of(block)]
    assert [row["count"] for row in made] == [4] * 4 + [1] + [4] * 8 + [3] * 3


@settings(max_examples=10)
@given(
    st.lists(st.integers(-1, 4), min_size=6, max_size=6).filter(lambda counts: max(counts) > 0),
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(1, 6),
)
def test_attempts_that_cut_differently_and_overlap_publish_each_row_s_output_once_and_whole(
    counts: Counts, first: int, start: int, second: int
) -> None:
    block = pages_of(counts)
    with tempfile.TemporaryDirectory() as folder:
        for attempt, length, begin, end in (("a", first, 0, 4), ("b", second, start, 6), ("c", 6, 0, 6)):
            run = make_run(folder, attempt=attempt)
            for task, place in enumerate(range(begin, end, length)):
                piece = block[place : min(place + length, end)]
                marked = apply.apply(piece, "infer", lambda live, by=attempt: result.Outcome({"by": [by] * len(live)}))
                write_part(run, ParquetSink(path="-"), f"{attempt}-{task:06d}", marked)
        records = staged_parts.read_records(run.parts)
        merged = row_ranges.merge([record.ranges for record in records])
        ready = merge(run.parts, records, merged, published_schema(records), run.parts, "f", "", "zstd", 2**30)
        found = pq.read_table(str(ready.files[0].place))
    ends = [blocks.LIVE if count > 0 else blocks.QUARANTINED if count < 0 else blocks.FILTERED for count in counts]
    for state in (blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED):
        assert row_ranges.rows_in_state(merged, state) == ends.count(state)
    wanted = [f"{place}.pdf#{page}" for place, count in enumerate(counts) for page in range(count)]
    assert sorted(found["row_id"].to_pylist()) == wanted
    assert ready.rows == len(wanted)
    assert nested_rows.COLUMN not in found.column_names
    attempts = {(row["row_id"].split("#")[0], row["by"]) for row in found.to_pylist()}
    assert len(attempts) == ends.count(blocks.LIVE), "all rows of one are of one attempt"


def test_a_sample_is_cut_to_so_many_made_rows_and_knows_how_many_a_row_becomes() -> None:
    block = pages_of([5, 0, 7, 3])
    assert blocks.rows_each(block) == pytest.approx(5)
    assert [row["x"] for row in rows_of(rebatch.first_rows(block, 6))] == [0, 1, 2, 3, 4, 200]
