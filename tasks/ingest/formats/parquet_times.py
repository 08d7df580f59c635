"""Finds INT96 times of a Parquet file that do not fit into microseconds, the unit in which the file is read."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from overnight.tasks.errors import RowError

IN_SECONDS = pa.timestamp("s")  # a type that Parquet lacks
NANOSECONDS_UNTIL = 9_223_372_036  # seconds from 1970 that 64 bits can represent in nanoseconds


def times_that_do_not_fit(
    file: pq.ParquetFile, reading: Callable[[str], pq.ParquetFile], group: int, columns: Sequence[str] | None
) -> dict[int, Exception]:
    """Return the errors of the row group's rows with INT96 times that microseconds cannot represent, by position.

    `group` is the index of the row group in `file`. `reading` opens the same file with its INT96 times in the given
    unit: `s`, `us` or `ns`. `columns` are the names to check; None: all.
    """
    names = [name for name in columns or file.schema_arrow.names if name in _int96_columns(file)]
    if not names:
        return {}
    tables = [reading(unit).read_row_group(group, columns=names) for unit in ("s", "us", "ns")]
    errors: dict[int, Exception] = {}
    for name in names:
        found = [_leaves(name, table[name].combine_chunks(), np.arange(len(table))) for table in tables]
        for (path, rows, in_seconds), (*_, in_micros), (*_, in_nanos) in zip(*found, strict=True):
            if in_seconds.type != IN_SECONDS:
                continue
            whole, told, finest = map(_integers, (in_seconds, in_micros, in_nanos))
            is_fine = (np.abs(whole) < NANOSECONDS_UNTIL) & (finest % 1000 != 0)
            for place in np.flatnonzero((told // 10**6 != whole) | is_fine).tolist():
                why = "with nanoseconds" if is_fine[place] else "outside the years that 64 bits can represent"
                reason = RowError(f"column {path}: expected a time in microseconds, found an INT96 time {why}")
                errors.setdefault(int(rows[place]), reason)
    return errors


def _int96_columns(file: pq.ParquetFile) -> set[str]:
    """Return the columns that are, or contain, INT96 times."""
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    paths = [f"{leaf.path}." for leaf in leaves if leaf.physical_type == "INT96"]
    return {name for name in file.schema_arrow.names if any(path.startswith(f"{name}.") for path in paths)}


def _leaves(path: str, array: pa.Array, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray, pa.Array]]:
    """Yield the innermost values of a column: their path of field names, the row of each value, and the values."""
    kind = array.type
    if pa.types.is_struct(kind):
        for field, values in zip(kind, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", values, rows)
    elif pa.types.is_fixed_size_list(kind):
        yield from _leaves(path, array.flatten(), rows[pc.list_parent_indices(array).to_numpy()])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        stops = array.offsets.to_numpy()
        inside = slice(stops[0], stops[-1])
        owners = np.repeat(rows, np.diff(stops))
        for values in (array.keys, array.items) if pa.types.is_map(kind) else (array.values,):
            yield from _leaves(path, values[inside], owners)
    else:
        yield path, rows, array


def _integers(times: pa.Array) -> np.ndarray:
    return times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
