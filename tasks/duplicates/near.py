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
from overnight.tasks.rows.nulls import map_present
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
        """Return the key of each row: its text's signature, or its vector scaled to length 1.

        It is null for a null or blank text, and for a vector that is null or zero or contains a null, NaN or infinity.
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
            raise self._unexpected("texts or lists of numbers", f"{kind}.")
        return pa.array(map_present(lambda key: tag + key, keys), pa.large_binary())

    def duplicates(self, keys: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows to drop. Raise `ContractError` for too many keys, and for keys of several kinds or lengths."""
        rows = in_order(self._held(keys))
        if not len(rows):
            return
        tags = pc.unique(pc.binary_slice(rows["key"], 0, 1)).to_pylist()
        if len(tags) > 1:
            raise self._unexpected("texts or lists of numbers", "both. Derive a column of one type.")
        sizes = pc.unique(pc.binary_length(rows["key"])).sort().to_pylist()
        if len(sizes) > 1:
            raise self._unexpected("vectors of one length", f"{sizes[0] // 4} and {sizes[-1] // 4} numbers.")
        near = texts.near if tags == [TEXT] else vectors.near
        is_near = near(_content(rows["key"], sizes[0]), self.threshold)
        yield rows.select(PLACES.names).filter(pa.array(is_near))

    def _held(self, keys: Iterable[pa.Table]) -> pa.Table:
        tables, size = [KEYS.empty_table()], 0
        for table in keys:
            tables.append(table.filter(pc.is_valid(table["key"])))
            size += tables[-1]["key"].nbytes
            if size > MOST_BYTES:
                raise self._unexpected(
                    f"at most {MOST_BYTES / 2**30:g} GiB of keys",
                    f"more after {sum(map(len, tables)):,} rows. Drop equal rows first with columns, or use smaller "
                    "partitions or shorter vectors.",
                )
        return pa.concat_tables(tables)

    def _unexpected(self, expected: str, found: str) -> ContractError:
        message = f"deduplicate: near: expected {expected} in column {self.column!r}, found {found}"
        return ContractError(message, "preprocess")


def _content(keys: pa.ChunkedArray, size: int) -> np.ndarray:
    """Return an array of uint8 with one row per key: its `size` bytes without the first."""
    array = keys.combine_chunks()
    first = np.frombuffer(array.buffers()[1], np.int64)[array.offset]
    content = np.frombuffer(array.buffers()[2], np.uint8)[first : first + len(array) * size]
    return np.ascontiguousarray(content.reshape(len(array), size)[:, 1:])


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind))
