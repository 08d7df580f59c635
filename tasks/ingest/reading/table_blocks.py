"""The common part of the table sources: row ids, reserved column names, and units that end unexpectedly."""

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.errors import BROKEN_OFF, InputError, OvernightError, RowError
from overnight.tasks.ingest.versioned_file import SourceChanged, SourceVanished
from overnight.tasks.rows import arrow_types, blocks
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.transient_errors import is_forbidden, is_full, is_passing

T = TypeVar("T")
ROWS_AT_ONCE = 8192
BYTES_AT_ONCE = 16 * 2**20
OF_ONE_FILE = frozenset(  # errors about a path, and not about the disk
    {
        *(errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.ENODEV, errno.EOVERFLOW, errno.EFBIG),
        errno.EILSEQ,
    }
)
# Libraries that access storage. The errors of `ssl` have numbers that are not an errno.
CLIENTS = (
    *("botocore", "aiobotocore", "aiohttp", "azure", "google.auth", "google.api_core", "gcsfs", "httpx", "httpcore"),
    *("huggingface_hub", "requests", "urllib3", "obstore", "ssl"),
)


def is_corrupt_file(error: Exception) -> bool:
    """Return True if `error` is about one file, so that its rows fail, and not about the storage or Overnight itself.

    The storage may work in a later attempt. Its errors have an errno or a status, or are of a kind that may pass. Arrow
    reports damage as an `OSError` without an errno.
    """
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
        return True
    if isinstance(error, OvernightError | ImportError) or is_passing(error) or is_forbidden(error) or is_full(error):
        return False
    if type(error).__module__.startswith(CLIENTS):
        return type(error).__name__ == "ParamValidationError"  # for an invalid address
    return not isinstance(error, OSError) or error.errno is None or error.errno in OF_ONE_FILE


@contextlib.contextmanager
def translate_corruption(expected: str) -> Iterator[None]:
    """Raise `RowError` if a library finds damage in a file. The message has `expected` and the library's message.

    `expected` describes the content of an intact file.
    """
    try:
        yield
    except MemoryError as error:  # or a damaged length requests too much
        raise RowError(f"expected {expected}: {shortage(error)}") from error
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) or not is_corrupt_file(error):
            raise
        if isinstance(error, pa.ArrowNotImplementedError):  # the file may be valid
            raise RowError(f"pyarrow {pa.__version__} cannot read {expected}: {str(error).strip()}") from error
        raise RowError(f"expected {expected}: {str(error).strip() or type(error).__name__}") from error


@contextlib.contextmanager
def translate_panics() -> Iterator[None]:
    """Raise `RuntimeError` for a panic of a library in Rust, which is not an `Exception` and would end a process."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"the library broke off: {error}") from error


def table_block(unit: dict, numbers: np.ndarray, data: pa.Table) -> pa.Table:
    """Return the rows `data` of a unit as a block. `numbers` (int64) has each row's number in its file, from 0.

    `unit` is a row of the manifest. A row gets a `row_id` of path and number, and the file's `uri`. A column of one of
    these names becomes `source_row_id` or `source_uri`. But if `unit["published"]` is True, because another job
    published the rows, such a column stays. Raise `InputError` for a column name that is reserved or occurs twice.
    """
    published = {name: data[name] for name in blocks.IDENTITY if unit.get("published") and name in data.column_names}
    data = data.drop_columns(list(published))
    names = [f"source_{name}" if name in blocks.IDENTITY else name for name in data.column_names]
    if len(set(names)) < len(names):
        double = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"{unit['path']}: expected each column once, found several named {', '.join(double)}.")
    reserved = [name for name in names if blocks.is_hidden(name)]
    if reserved:
        raise InputError(f"{unit['path']}: the column name {reserved[0]} is reserved; rename it in the source.")
    columns: dict[str, Any] = {
        "row_id": pc.binary_join_element_wise(unit["path"], pa.array(numbers).cast(pa.string()), "#"),
        "uri": pa.repeat(pa.scalar(unit["uri"], pa.string()), len(numbers)),
    }
    columns |= {name: column.cast(pa.string()) for name, column in published.items()}
    columns |= dict(zip(names, data.columns, strict=True))
    return blocks.with_hidden(pa.table(columns), np.full(len(numbers), unit["unit"]), numbers)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, or the ordinary type of views, large texts and large lists.

    Other types are returned unchanged.
    """
    kind = arrow_types.plain_type(kind)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def chosen_columns(schema: pa.Schema, names: list[str] | None) -> pa.Schema:
    """Return the columns `names` of `schema`, in the order of `names`; all columns if `names` is None or empty.

    Each column has the result of `plain_type` for its type. Raise `InputError` for an unknown name.
    """
    if missing := sorted(set(names or ()) - set(schema.names)):
        raise InputError(f"source.columns: no column {missing[0]}; the columns are {', '.join(schema.names)}.")
    return pa.schema([(name, plain_type(schema.field(name).type)) for name in names or schema.names])


def as_schema(data: pa.Table, schema: pa.Schema, constants: Mapping[str, str | None] = {}) -> pa.Table:
    """Return `data` with the columns and types of `schema`.

    A column whose name is in `constants` has the value there in every row. Any other column that `data` lacks is null.
    Raise `RowError` for a value that its type in `schema` cannot represent.
    """
    columns = {}
    for field in schema:
        if field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], pa.string()), len(data)).cast(field.type)
        elif field.name in data.column_names:
            found = arrow_types.plain_column(data[field.name])
            with translate_corruption(f"column {field.name} as {field.type}, found {found.type}"):
                column = found.cast(field.type)
        else:
            column = pa.nulls(len(data), field.type)
        columns[field.name] = column
    return pa.table(columns, schema=pa.schema([(field.name, field.type) for field in schema]))


def untrue_values(data: pa.Table) -> dict[int, Exception]:
    """Return the errors of rows with values that are invalid for their types, by position.

    Readers do not check such values, for example texts that are not UTF-8.
    """
    try:
        data.validate(full=True)  # 40 GB per second
        return {}
    except pa.ArrowInvalid:
        errors: dict[int, Exception] = {}
    for field, column in zip(data.schema, data.columns, strict=True):
        for row in range(len(data)):
            try:
                column.take(pa.array([row])).validate(full=True)
            except pa.ArrowInvalid as error:
                why = f"found another value: {str(error).removeprefix('In chunk 0: Invalid: ')}"
                errors.setdefault(row, RowError(f"column {field.name}: expected {field.type}, {why}"))
    return errors


def quarantined_rows(unit: dict, numbers: list[int], errors: list[Exception]) -> pa.Table:
    """Return a block of quarantined rows of a unit. `unit` is a row of the manifest.

    `numbers` are the numbers of the rows in their file, from 0, and `errors` has one error per row.
    """
    identity = {"row_id": [f"{unit['path']}#{number}" for number in numbers], "uri": [unit["uri"]] * len(numbers)}
    return blocks.quarantined_block(identity, unit["unit"], numbers, "ingest", errors)


def unreadable(unit: dict, error: Exception) -> Iterator[pa.Table]:
    """Yield the blocks of a unit whose file cannot be opened: one row, which is quarantined with `error`.

    `unit` is a row of the manifest. If its number of rows is unknown, an END row follows, which states it.
    """
    identity = {"row_id": [unit["path"]], "uri": [unit["uri"]]}
    yield blocks.quarantined_block(identity, unit["unit"], [0], "ingest", [error])
    if unit["rows"] is None:
        yield end_of_unit(unit, 1)


def lost_unit(unit: dict, error: Exception) -> Iterator[pa.Table]:
    """Yield the blocks of a unit that cannot be read: all of its rows, quarantined with `error`.

    `unit` is a row of the manifest. If its number of rows is unknown, one row represents them, and an END row follows,
    which states the number.
    """
    if unit["rows"] in (None, 1) and not unit["first_row"]:
        yield from unreadable(unit, error)
        return
    yield from rest_of_unit(unit, unit["first_row"], unit["first_row"] + (unit["rows"] or 1), error)
    if unit["rows"] is None:
        yield end_of_unit(unit, unit["first_row"] + 1)


def end_of_unit(unit: dict, count: int) -> pa.Table:
    """Return a block with the END row of a unit, which states that reading found `count` rows in the unit's file.

    `unit` is a row of the manifest that has no number of rows.
    """
    return blocks.settled_block({}, unit["unit"], [count], blocks.END)


def rest_of_unit(unit: dict, first: int, stop: int, error: Exception) -> Iterator[pa.Table]:
    """Yield blocks of the rows from `first` to before `stop` of the unit's file, each quarantined with `error`."""
    for start in range(first, stop, ROWS_AT_ONCE):
        numbers = list(range(start, min(stop, start + ROWS_AT_ONCE)))
        yield quarantined_rows(unit, numbers, [error] * len(numbers))


def finish_text_file(unit: dict, count: int, damage: Exception | None) -> Iterator[pa.Table]:
    """Yield the last blocks of a unit whose file ended after `count` rows, or whose next rows could not be read.

    `damage` is the error that ended the file early, or None. If the manifest has the unit's number of rows, the missing
    rows are quarantined. Otherwise one quarantined row represents all rows after the damage. An END row, which states
    the number of rows, then follows.
    """
    if damage and not count and unit["rows"] in (None, 1):
        yield from unreadable(unit, damage)
        return
    stop = unit["rows"] if unit["rows"] is not None else count + bool(damage)
    reason = f"{BROKEN_OFF}: {error_message(damage)}" if damage else "the file ends before this row"
    is_other = isinstance(damage, SourceChanged | SourceVanished)
    yield from rest_of_unit(unit, count, stop, damage if damage and is_other else RowError(reason))
    if unit["rows"] is None:
        yield end_of_unit(unit, stop)


def size_of(item: bytes | Exception) -> int:
    """Return the number of bytes of an item; 0 for an error."""
    return len(item) if isinstance(item, bytes) else 0


def chunk(items: Iterator[T], rows: int, size_of: Callable[[T], int]) -> tuple[list[T], Exception | None]:
    """Return the next items as a list, which is empty at the end, and the error that ended them early, or None.

    The list has at most `rows` items, and ends when the items have `BYTES_AT_ONCE` together. `size_of` returns the
    bytes of an item. Raise an error that is not about the file itself, such as one of the storage.
    """
    found: list[T] = []
    size = 0
    try:
        for item in items:
            found.append(item)
            size += size_of(item)
            if len(found) == rows or size >= BYTES_AT_ONCE:
                break
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        return found, error
    return found, None
