"""Find values and columns that a sink cannot write. A value quarantines its row, and a column fails the run.

Each sink chooses its checks among these. The checks test whole columns; `unfit_rows` finds the rows. The argument
`what` names the sink or the type in the message, such as `a Delta table`.
"""

import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.errors import ContractError, OvernightError, RowError
from overnight.tasks.rows.arrow_types import is_text, kinds_in, leaves
from overnight.tasks.state.run import Run
from overnight.tasks.write.merge.json_values import has_non_finite, plain


def unfit_rows(table: pa.Table, take: Callable[[pa.Table], None]) -> dict[int, Exception]:
    """Return row number -> error for each row of the table that `take` refuses by raising.

    An `OvernightError` propagates, because no row caused it.
    """
    if not len(table):
        return {}
    try:
        take(table)
    except OvernightError:
        raise
    except Exception as error:
        if len(table) == 1:
            return {0: error}
        half = len(table) // 2
        after = unfit_rows(table[half:], take)
        return unfit_rows(table[:half], take) | {row + half: reason for row, reason in after.items()}
    return {}


def refuse_broken_texts(table: pa.Table) -> None:
    """Raise `RowError` for a text that is not UTF-8: statistics and readers would fail on it."""
    for name, leaf in _leaves(table):
        try:
            leaf.validate(full=True)
        except pa.ArrowInvalid as error:
            raise RowError(f"column {name!r}: expected a text in UTF-8, found other bytes.") from error


def refuse_overflowing_times(table: pa.Table) -> None:
    """Raise `RowError` for a time in whole seconds that does not fit into 64 bits as Parquet's milliseconds."""
    for name, leaf in _leaves(table):
        if types.is_timestamp(leaf.type) and leaf.type.unit == "s":
            try:
                leaf.cast(pa.timestamp("ms", leaf.type.tz))
            except pa.ArrowInvalid as error:
                raise RowError(
                    f"column {name!r}: expected a time that Parquet can represent, found a later one."
                ) from error


def refuse_far_times(table: pa.Table) -> None:
    """Raise `RowError` for a day or a time that is not in the years 1 to 9999, which the sink cannot represent."""
    for name, leaf in _leaves(table):
        if types.is_date(leaf.type) or (types.is_timestamp(leaf.type) and leaf.type.unit != "ns"):
            try:
                pc.min_max(plain(pa.chunked_array([leaf]))).as_py()
            except (OverflowError, ValueError) as error:
                raise RowError(f"column {name!r}: expected a time in the years 1 to 9999, found another.") from error


def refuse_fine_times(table: pa.Table, what: str, is_time: Callable[[pa.DataType], bool] = types.is_timestamp) -> None:
    """Raise `RowError` for a time with a fraction below a microsecond, which the sink would cut off."""
    for name, leaf in _leaves(table):
        if not is_time(leaf.type) or leaf.type.unit != "ns":
            continue
        nanoseconds = leaf.cast(pa.int64()).drop_null().to_numpy()
        if (nanoseconds % 1000).any():
            raise RowError(
                f"column {name!r}: expected a time in whole microseconds, which {what} stores, found nanoseconds. "
                "Round it where it is made, or publish it as text."
            )


def refuse_nan(table: pa.Table, what: str) -> None:
    """Raise `RowError` for NaN outside lists and structs, for which the sink would store null."""
    for name in table.column_names:
        column = table[name]
        if types.is_floating(column.type) and pc.any(pc.is_nan(column.cast(pa.float64()))).as_py():
            raise RowError(
                f"column {name!r}: expected a number, an infinity or null, found NaN, which {what} stores as null. "
                "Make it null where it is made, or publish it as text."
            )


def refuse_infinite(table: pa.Table, what: str) -> None:
    """Raise `RowError` for NaN or an infinity in the columns of the table, also in lists and structs."""
    for name in table.column_names:
        if has_non_finite(table[name]):
            raise RowError(
                f"column {name!r}: expected finite numbers or null, which {what} can store, found NaN or an infinity. "
                "Make it null where it is made, or publish it as text."
            )


def refuse_null_characters(table: pa.Table) -> None:
    """Raise `RowError` for a text with the character NUL, which databases refuse."""
    for name, leaf in _leaves(table):
        if is_text(leaf.type) and pc.any(pc.match_substring(leaf, "\0")).as_py():
            raise RowError(f"column {name!r}: expected a text without the character NUL, found one with it.")


def refuse_partition_column(schema: pa.Schema, run: Run) -> None:
    """Raise `ContractError` if a data column has the partition column's name: readers would see two."""
    for column in partition_values(run.partition_column, run.partition):
        if column in schema.names:
            raise ContractError(
                f"a data column is named {column!r} like the partition column. "
                "Rename it, or set sink.partition_column to another name.",
                "write",
            )


def refuse_types_beyond_parquet(schema: pa.Schema) -> None:
    """Raise `ContractError` for a column whose type the staged Parquet files do not support."""
    for field in schema:
        if any(types.is_interval(kind) or types.is_union(kind) for kind in kinds_in(field.type)):
            raise ContractError(
                f"column {field.name!r}: Parquet, in which rows are staged, cannot store {field.type}. "
                "Return another type, or the value as text.",
                "write",
            )


def refuse_same_but_for_case(names: Iterable[str], what: str) -> None:
    """Raise `ContractError` for two column names that differ only in upper and lower case."""
    names_by_fold: dict[str, str] = {}
    for name in names:
        first = names_by_fold.setdefault(name.casefold(), name)
        if first != name:
            raise ContractError(
                f"columns {first!r} and {name!r} differ only in upper and lower case, which {what} does not "
                f"distinguish. Rename one of them where it is made, for example to {f'{name}_2'!r}.",
                "write",
            )


def refuse_names(names: Iterable[str], unfit: str, what: str, most_bytes: int | None = None) -> None:
    """Raise `ContractError` for a column name that the sink cannot store.

    Such a name is empty, has a match of the regular expression `unfit`, or has more than `most_bytes` in UTF-8.
    """
    for name in names:
        match, size = re.search(unfit, name), len(name.encode())
        if not name:
            reason = "no name"
        elif match:
            reason = f"{match.group()!r} in it"
        elif most_bytes is not None and size > most_bytes:
            reason = f"{size} bytes, more than {most_bytes}"
        else:
            continue
        better = re.sub(r"\W+", "_", name).strip("_")[: (most_bytes or 60) // 4] or "column"
        raise ContractError(
            f"column {name!r}: expected a name that {what} can store, found {reason}. "
            f"Rename the column where it is made, for example to {better!r}.",
            "write",
        )


def _leaves(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the arrays of innermost values, each with the name of its column."""
    for name in table.column_names:
        for chunk in table[name].chunks:
            for leaf in leaves(chunk):
                yield name, leaf
