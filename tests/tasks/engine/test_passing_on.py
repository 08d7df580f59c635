"""What a task passes on: blocks of bounded bytes, and nothing waits because its rows are slow."""

import math

import pyarrow as pa

from overnight.tasks.engine.passing_on import LARGEST_BLOCK_BYTES, PartSize, passed_on, without_padding
from overnight.tasks.rows.rebatch import cut
from tests.tasks.blocks import source_block

SMALL, LARGE = 300, 300_000  # bytes of a row


def block(first: int, count: int, size: int) -> pa.Table:
    names = [f"a#{row}" for row in range(first, first + count)]
    return source_block(0, first, pa.table({"row_id": names, "text": ["x" * size] * count}))


def names(pieces: list[pa.Table]) -> list[str]:
    found: list[str] = pa.concat_tables(map(without_padding, pieces))["row_id"].to_pylist()
    return found


def test_large_rows_are_passed_on_in_blocks_of_bounded_bytes() -> None:
    pieces = list(passed_on([block(0, 400, LARGE)], LARGEST_BLOCK_BYTES, 3600))
    assert max(piece.nbytes for piece in pieces) <= LARGEST_BLOCK_BYTES
    assert names(pieces) == [f"a#{row}" for row in range(400)]
    assert sum(map(len, pieces)) == 400, "without padding"


def test_a_task_that_lasts_passes_on_what_it_has_as_a_full_block() -> None:
    pieces = list(passed_on((block(first, 4, SMALL) for first in range(0, 12, 4)), 10_000, 0))
    assert [len(piece) for piece in pieces] == [5] * 3
    assert all(10_000 < piece.nbytes < 10_500 for piece in pieces)
    assert names(pieces) == [f"a#{row}" for row in range(12)]


def test_a_full_block_gets_no_padding_although_its_task_lasts() -> None:
    assert [len(piece) for piece in passed_on([block(0, 40, SMALL)], 10_000, 0)] == [40]


def test_a_block_is_cut_to_so_many_bytes_or_one_row() -> None:
    pieces = list(cut(block(0, 7, 1_000), 2_500))
    assert [len(piece) for piece in pieces] == [1, 2, 2, 2]
    assert [len(piece) for piece in cut(block(0, 2, 1_000), 10)] == [1, 1]


def test_the_set_seconds_decide_unless_rows_are_set() -> None:
    by_time, by_rows = PartSize(rows=None, seconds=6.0), PartSize(rows=7, seconds=6.0)
    assert [by_time.is_due(rows, seconds) for rows, seconds in ((10**9, 1.9), (1, 2.0))] == [False, True]
    assert [by_rows.is_due(rows, seconds) for rows, seconds in ((6, 10**9), (7, 0.0))] == [False, True]
    assert (by_time.longest, by_rows.longest) == (2.0, math.inf)
