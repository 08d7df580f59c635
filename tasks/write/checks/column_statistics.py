"""Statistics of columns, a few figures per column, for the checks of this run and for the drift of the next one.

`describe` makes one record per column of one table. `combine` joins the records of several tables, exactly as if they
were one. A record is a dict of JSON values; see the comments in `_record`. `summary` has the receipt's form.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows import blocks
from overnight.tasks.rows.arrow_types import is_list, is_text, with_inner_fields

MOST_CLASSES, CLASS_BYTES = 1000, 64  # ImageNet's labels fit
FIRST_VALUES = 8192
FIGURES = ("min", "max", "mean", "standard_deviation")
Record = dict[str, Any]
Columns = dict[str, Record]


def describe(table: pa.Table) -> Columns:
    """Return the statistics of each column except `row_id` and `uri`, as column -> record."""
    return {name: _record(table[name]) for name in table.column_names if name not in blocks.IDENTITY}


def combine(parts: Iterable[Columns]) -> Columns:
    """Return the statistics of several tables as if they were one table. A column has one type in all tables."""
    columns: dict[str, list[Record]] = {}
    for part in parts:
        for name, record in part.items():
            columns.setdefault(name, []).append(record)
    return {name: _combined(records) for name, records in columns.items()}


def summary(columns: Columns, named: Collection[str]) -> Columns:
    """Return the statistics of a partition's `columns` as the receipt has them, with a `sum` of numbers.

    `constant` replaces `digest`. `classes` becomes null below two rows per value, except for the columns `named`.
    """
    return {name: _summed_up(record, name in named) for name, record in columns.items()}


def _summed_up(record: Record, keep_classes: bool) -> Record:
    result = {"constant" if key == "digest" else key: value for key, value in record.items()}
    result["constant"] = record["digest"] is not None
    present = record["rows"] - record["nulls"]
    if record.get("mean") is not None:
        total = record["mean"] * (present - record["nan"] - record["infinite"])
        result["sum"] = total if np.isfinite(total) else None
        if np.isfinite(total) and "int" in record["type"]:
            result["sum"] = round(total)
    if not keep_classes and 2 * len(record.get("classes") or ()) > present:
        result["classes"] = None
    return result


def _record(column: pa.ChunkedArray) -> Record:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    present, kind = column.drop_null(), column.type
    record = {
        "type": str(kind),
        "rows": len(column),
        "nulls": len(column) - len(present),
        "digest": _digest(present),  # of the one value that all rows but nulls have; null for several or none
    }
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        record |= _figures(present)
    elif is_list(kind):
        record |= _rows_not_finite(present)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or is_text(kind):
        record["classes"] = _classes(present)  # rows by value; null for too many values, or a long one
    return record


def _figures(present: pa.ChunkedArray) -> Record:
    """Return the numbers of NaN and infinities, and the figures of the finite numbers, null without any."""
    values = present.cast(pa.float64(), safe=False).to_numpy()
    nan, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    if nan or infinite:
        values = values[np.isfinite(values)]
    record = {"nan": nan, "infinite": infinite}
    if not len(values):
        return record | dict.fromkeys(FIGURES)
    low, high = values.min(), values.max()
    if low == high:
        return record | _as_json(low, high, low, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        return record | _as_json(low, high, values.mean(), values.std())


def _as_json(*figures: float) -> Record:
    """Return the four figures, null if float64 cannot represent one."""
    return {name: float(figure) if np.isfinite(figure) else None for name, figure in zip(FIGURES, figures, strict=True)}


def _rows_not_finite(present: pa.ChunkedArray) -> Record:
    """Return the numbers of rows of lists, at any depth, with NaN or an infinity; empty for lists of other types."""
    kind = present.type
    while is_list(kind):
        kind = kind.value_type
    if not pa.types.is_floating(kind):
        return {}
    nan = infinite = 0
    for chunk in present.chunks:
        array, owners = chunk, []
        while is_list(array.type):
            owners.append(array)
            array = array.flatten()
        values = array.to_numpy(zero_copy_only=False)
        if np.isfinite(values).all():
            continue
        # A null among the numbers is NaN here.
        is_nan = np.isnan(values) & array.is_valid().to_numpy(zero_copy_only=False)
        nan += _rows_that_hold(is_nan, owners)
        infinite += _rows_that_hold(np.isinf(values), owners)
    return {"nan": nan, "infinite": infinite}


def _rows_that_hold(marked: np.ndarray, owners: list[pa.Array]) -> int:
    """Return the number of rows of the outermost list with at least one marked value."""
    places = np.flatnonzero(marked)
    for owner in reversed(owners):
        places = np.unique(pc.list_parent_indices(owner).to_numpy()[places])
    return len(places)


def _classes(present: pa.ChunkedArray) -> dict[str, int] | None:
    if is_text(present.type) and (pc.max(pc.binary_length(present)).as_py() or 0) > CLASS_BYTES:
        return None
    if len(present[:FIRST_VALUES].unique()) > MOST_CLASSES:  # a column of numbers or ids need not be counted as a whole
        return None
    counts = present.value_counts()
    if len(counts) > MOST_CLASSES:
        return None
    classes = {}
    for value, rows in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        classes[value if isinstance(value, str) else json.dumps(value)] = rows
    return _ordered(classes)


def _ordered(classes: dict[str, int]) -> dict[str, int]:
    """Return the classes, the most frequent first."""
    return dict(sorted(classes.items(), key=lambda item: (-item[1], item[0])))


def _digest(present: pa.ChunkedArray) -> str | None:
    """Return the digest of the only value, without copies: a column equals itself shifted by a row, or differs soon."""
    bits = pa.chunked_array([chunk.view(_bits(chunk.type)) for chunk in present.chunks], _bits(present.type))
    if not len(bits) or not bits.slice(1).equals(bits.slice(0, len(bits) - 1)):
        return None
    return hashlib.sha256(repr(bits[0].as_py()).encode()).hexdigest()[:16]


def _bits(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a value can be compared bit for bit: NaN equals itself, and times are whole numbers."""
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width]
    if pa.types.is_map(kind):
        return kind
    return with_inner_fields(kind, lambda field: field.with_type(_bits(field.type)))


def _combined(records: list[Record]) -> Record:
    result = dict(records[0])
    for name in ("rows", "nulls", "nan", "infinite"):
        if name in result:
            result[name] = sum(record[name] for record in records)
    digests = {record["digest"] for record in records if record["rows"] > record["nulls"]}
    result["digest"] = digests.pop() if len(digests) == 1 else None
    if "mean" in result:
        result |= _combined_figures(records)
    if "classes" in result:
        result["classes"] = _combined_classes(records)
    return result


def _combined_figures(records: list[Record]) -> Record:
    """Combine figures as in Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm"."""
    figures = []
    for record in records:
        count = record["rows"] - record["nulls"] - record["nan"] - record["infinite"]
        if count:
            figures.append((count, *(record[name] for name in FIGURES)))
    if not figures:
        return dict.fromkeys(FIGURES)
    counts, lows, highs, means, deviations = np.array(figures, np.float64).T  # null becomes NaN
    with np.errstate(over="ignore", invalid="ignore"):
        mean = means[0] + (counts * (means - means[0])).sum() / counts.sum()
        variance = (counts * (deviations**2 + (means - mean) ** 2)).sum() / counts.sum()
        return _as_json(lows.min(), highs.max(), mean, np.sqrt(variance))


def _combined_classes(records: list[Record]) -> dict[str, int] | None:
    classes: Counter[str] = Counter()
    for record in records:
        if record["classes"] is None:
            return None
        classes.update(record["classes"])
        if len(classes) > MOST_CLASSES:
            return None
    return _ordered(classes)
