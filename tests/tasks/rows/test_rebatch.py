"""Blocks are collected to a number of rows or bytes, or for a time."""

import pyarrow as pa
import pytest

from overnight.tasks.rows import rebatch
from tests.tasks.blocks import source_block


def blocks_of(*lengths: int) -> list[pa.Table]:
    return [
        source_block(0, 0, pa.table({"row_id": [f"{place}-{row}" for row in range(length)]}))
        for place, length in enumerate(lengths)
    ]


def test_rows_are_collected_to_a_number_or_for_a_time() -> None:
    assert [len(block) for block in rebatch.rebatch_rows(blocks_of(3, 1, 5), lambda: 4)] == [4, 4, 1]
    assert [len(block) for block in rebatch.rebatch_rows(blocks_of(3, 1, 5), lambda: 4, seconds=0)] == [3, 1, 4, 1]


def test_rows_do_not_get_the_columns_of_a_block_before_that_was_used_up() -> None:
    numbers = source_block(0, 0, pa.table({"row_id": ["a"], "x": [1], "only_here": [2]}))
    texts = source_block(1, 0, pa.table({"row_id": ["b"], "x": ["one"]}))
    assert list(rebatch.rebatch_rows([numbers, texts], lambda: 1)) == [numbers, texts]


def test_small_blocks_are_collected_to_bytes_or_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [len(block) for block in rebatch.rebatch_bytes(blocks_of(3, 1, 5), 2**20)] == [9]
    pieces = (pa.table({"x": pa.array([1, 2])}) for _ in range(7))
    assert [len(piece) for piece in rebatch.rebatch_bytes(pieces, 3 * 16)] == [6, 6, 2]
    monkeypatch.setattr(rebatch, "SECONDS_AT_ONCE", 0)
    assert [len(block) for block in rebatch.rebatch_bytes(blocks_of(3, 1, 5), 2**20)] == [3, 1, 5]
