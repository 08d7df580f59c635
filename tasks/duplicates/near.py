"""Find rows that are nearly equal. Texts are compared by MinHash, lists of numbers by cosine similarity.

Rows are compared in manifest order. A row is dropped if its similarity to an earlier row that stays is at least the
threshold.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.duplicates import texts, vectors
from overnight.tasks.duplicates.places import KEYS, PLACES, in_order
from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import is_list, is_text
from overnight.tasks.rows.tensors import TENSOR

MOST_BYTES = 4 * 2**30  # of keys: 2.8 million vectors of 384 numbers, or 8 million texts
TEXT, VECTOR = b"t", b"v"  # the first byte of a key


@dataclass(frozen=True)
class Near:
    """A rule that drops a row if an earlier row that stays is nearly equal to it in `column`, in manifest order.

    `threshold` is the least similarity of duplicates, above 0 and at most 1.
    """

    column: str
    threshold: float

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def keys(self, table: pa.Table) -> pa.Array:
        """Return the key of each row (large_binary): its text's signature, or its vector scaled to length 1.

        The key is null for a null or blank text. It is also null for a vector that is null or zero, or contains a null,
        a NaN or an infinite number. Raise `ContractError` if the column has neither texts nor lists of numbers.
        """
        column = table[self.column]
        kind = column.type
        if types.is_null(kind):
            return pa.nulls(len(column), pa.large_binary())
        if is_text(kind):
            keys, tag = texts.signatures(column.to_pylist()), TEXT
        elif kind == TENSOR or (is_list(kind) and _is_number(kind.value_type)):
            keys, tag = vectors.directions(column), VECTOR
        else:
            raise ContractError(
                f"deduplicate: near: expected texts or lists of numbers in column {self.column!r}, found {kind}.",
                "preprocess",
            )
        return pa.array([None if key is None else tag + key for key in keys], pa.large_binary())

    def duplicates(self, keys: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows to drop, as a table with schema `PLACES` in manifest order.

        `keys` are tables with schema `KEYS`, which have the place and the key of each row, in any order. Raise
        `ContractError` for more than `MOST_BYTES` of keys, and if texts and vectors, or vectors of several lengths, are
        mixed.
        """
        held, size = [KEYS.empty_table()], 0
        for table in keys:
            held.append(table.filter(pc.is_valid(table["key"])))
            size += held[-1]["key"].nbytes
            if size > MOST_BYTES:
                raise ContractError(
                    f"deduplicate: near: expected at most {MOST_BYTES / 2**30:g} GiB of keys of column "
                    f"{self.column!r}, found more after {sum(map(len, held)):,} rows. Drop equal rows first with "
                    "columns, or use smaller partitions or shorter vectors.",
                    "preprocess",
                )
        rows = in_order(pa.concat_tables(held))
        held.clear()  # otherwise memory holds the keys once more
        if not len(rows):
            return
        tags = {*pc.unique(pc.binary_slice(rows["key"], 0, 1)).to_pylist()}
        if len(tags) > 1:
            raise ContractError(
                f"deduplicate: near: expected texts or lists of numbers in column {self.column!r}, found both. Derive "
                "a column of one type.",
                "preprocess",
            )
        sizes = pc.unique(pc.binary_length(rows["key"])).sort().to_pylist()
        if len(sizes) > 1:
            raise ContractError(
                f"deduplicate: near: expected vectors of one length in column {self.column!r}, found "
                f"{sizes[0] // 4} and {sizes[-1] // 4} numbers.",
                "preprocess",
            )
        near = texts.near if tags == {TEXT} else vectors.near
        yield rows.select(PLACES.names).filter(pa.array(near(_content(rows["key"], sizes[0]), self.threshold)))


def _content(keys: pa.ChunkedArray, size: int) -> np.ndarray:
    """Return an array of uint8 with one row per key: its `size` bytes without the first."""
    array = keys.combine_chunks()
    first = np.frombuffer(array.buffers()[1], np.int64)[array.offset]
    content = np.frombuffer(array.buffers()[2], np.uint8)[first : first + len(array) * size]
    return np.ascontiguousarray(content.reshape(len(array), size)[:, 1:])


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind))
