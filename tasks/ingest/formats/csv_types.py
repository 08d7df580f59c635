"""Conversion of text columns to the types of a CSV source; rows that do not fit fail alone.

A type is inferred only if it writes every value back unchanged: `02116`, `+4912` and a number of 20 digits stay text.
The case of truth values and the spelling of nulls do not count. Zeros at the end of fractions do not count if all
fractions of the column have the same number of digits.
"""

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.column_types import fitting, is_exact
from overnight.tasks.ingest.formats.text_lines import MARK

FIRST_ROWS = 100
_CONVERT = pcsv.ConvertOptions()
_TRUTHS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
_KINDS = (
    *(pa.int64(), pa.bool_(), pa.date32(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("s", "UTC")),
    *(pa.timestamp("ns", "UTC"), pa.float64()),
)
_FLOAT = r"^-?(nan|NaN|inf|Infinity|((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?)$"
_SURELY_FLOAT = r"\.|[eE][-+]"  # 1e5 may be a code; programs write 1e+05, 100000.0 or 1.0E5
_ENDS_IN_ZEROS = r"\.([0-9]*[1-9]0+|00+)$"


def inferred_type(text: pa.ChunkedArray, spellings: bool = True) -> pa.DataType:
    """Return the integer, boolean, date, time or float type that represents all texts exactly; otherwise text."""
    present = _with_nulls(text.combine_chunks(), spellings).drop_null()
    for kind in _KINDS if len(present) else ():
        try:
            # first a few, because a cast that fails still reads all values
            _cast(present[:FIRST_ROWS], kind)
            values = _cast(present, kind)
        except pa.ArrowInvalid:
            continue
        if not pc.any(_changed(present, values)).as_py() and _is_of_one_form(present, kind):
            return kind
    return pa.string()


def changes(text: pa.ChunkedArray, kind: pa.DataType, spellings: bool = True) -> bool:
    """Return True if a cast to `kind` would change at least one of the texts, as a cast to int64 makes 7 of `007`."""
    present = _with_nulls(text.combine_chunks(), spellings).drop_null()
    if pa.types.is_string(kind) or not len(present):
        return False
    values, _ = text_as(_loose(present), kind)
    return bool(pc.any(_changed(present, values)).as_py())


def convert(
    data: pa.Table, schema: pa.Schema, is_marked: bool, declared: Mapping[str, str], spellings: bool
) -> tuple[pa.Table, dict[int, Exception]]:
    """Return the text columns `data` in the types of `schema`, and the errors of rows that do not fit, by position."""
    # A type that the job sets takes every notation; others take a text only if they would write it in the same way.
    fields = list(schema)
    for name in data.column_names:
        if name not in schema.names:
            fields.append(pa.field(name, declared.get(name) or pa.string()))
    errors: dict[int, Exception] = {}
    columns = {}
    for field in fields:
        if field.name not in data.column_names:
            columns[field.name] = pa.nulls(len(data), field.type)
            continue
        text = data[field.name].combine_chunks()
        is_declared = field.name in declared
        columns[field.name], misfits = _convert_column(text, field, is_declared, spellings)
        errors = misfits | errors
        if is_marked:
            errors = _not_text(text, field.name) | errors
    return pa.table(columns), errors


def text_as(text: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return the texts as values of type `kind`, null where a cast fails, and the positions of the texts that fail."""
    return fitting(text, lambda texts: _cast(texts, kind), kind)


def _not_text(text: pa.Array, name: str) -> dict[int, Exception]:
    errors: dict[int, Exception] = {}
    for row in _true_positions(pc.match_substring(text, MARK)):
        errors[row] = RowError(f"column {name}: expected UTF-8, found {_shown(text[row])}; see source.encoding")
    return errors


def _convert_column(
    text: pa.Array, field: pa.Field, is_declared: bool, spellings: bool
) -> tuple[pa.Array, dict[int, Exception]]:
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return text.cast(field.type), {}
    text = _with_nulls(text, spellings)
    trim = pc.utf8_trim_whitespace if is_declared else _loose
    column, misfits = text_as(trim(text), field.type)
    sentence = f"column {field.name}: expected {field.type}, found"
    errors: dict[int, Exception] = {}
    for row in misfits:
        errors[row] = RowError(f"{sentence} {_shown(text[row])}")
    if not is_declared:
        advice = f"which {field.type} cannot represent as written; see source.types"
        for row in _true_positions(_changed(text, column)):
            errors.setdefault(row, RowError(f"{sentence} {_shown(text[row])}, {advice}"))
    return column, errors


@cache
def _nulls() -> pa.Array:
    """Return the spellings of a null. They are made at first use: the first array from a list imports pandas."""
    return pa.array(_CONVERT.null_values)


def _with_nulls(text: pa.Array, spellings: bool) -> pa.Array:
    if not spellings:
        return text
    is_null = pc.is_in(pc.utf8_trim_whitespace(text), _nulls())
    return pc.if_else(is_null, pa.scalar(None, pa.string()), text)


def _loose(text: pa.Array) -> pa.Array:
    return pc.utf8_ltrim(pc.utf8_trim_whitespace(text), "+")


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_boolean(kind):
        return pc.cast(text, kind)
    is_true = pc.is_in(text, pa.array(_CONVERT.true_values))
    is_false = pc.is_in(text, pa.array(_CONVERT.false_values))
    if not pc.all(pc.or_(pc.or_(is_true, is_false), pc.is_null(text)), min_count=0).as_py():
        raise pa.ArrowInvalid("not a boolean")
    return pc.if_else(pc.is_null(text), pa.scalar(None, pa.bool_()), is_true)


def _changed(text: pa.Array, values: pa.Array) -> pa.Array:
    """Return for each text True if its value would be written as another text. A null has no value, and is not True."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return pc.not_equal(pc.cast(values, pa.string()), text)
    if pa.types.is_boolean(kind):
        is_usual = pc.is_in(text, pa.array(sum(_TRUTHS, ())))
        return pc.and_(pc.is_valid(values), pc.invert(is_usual))
    if pa.types.is_floating(kind):
        return _changed_floats(text, values)
    return pc.not_equal(_loose(text), text)  # a time that can be read is exact


def _changed_floats(text: pa.Array, values: pa.Array) -> pa.Array:
    digits, shortest = _digits(text), _digits(pc.cast(values, pa.string()))
    is_other = pc.and_(pc.is_valid(values), pc.invert(pc.match_substring_regex(text, _FLOAT)))
    # A program may write more digits than the shortest text of the same number: 0.10000000000000001 for 0.1.
    longer = _true_positions(pc.not_equal(digits, shortest))
    inexact = [row for row in longer if not is_exact(text[row].as_py(), values[row].as_py())]
    if not inexact:
        return is_other
    return pc.or_(is_other, pc.is_in(pa.array(range(len(text))), pa.array(inexact, pa.int64())))


def _digits(numbers: pa.Array) -> pa.Array:
    return pc.ascii_trim(pc.replace_substring_regex(numbers, r"[eE].*|[^0-9]", ""), "0")


def _is_of_one_form(text: pa.Array, kind: pa.DataType) -> bool:
    """Return True if equal values have equal texts, so that the type distinguishes the same values as the texts."""
    if pa.types.is_boolean(kind):
        return any(pc.all(pc.is_in(text, pa.array(pair))).as_py() for pair in _TRUTHS)
    if not pa.types.is_floating(kind):
        return True
    # All fractions of a column of prices have two digits. A column with 1.9 and 1.10 is not of numbers.
    if pc.any(pc.match_substring_regex(text, _ENDS_IN_ZEROS)).as_py():
        fractions = text.filter(pc.match_substring(text, "."))
        digits = pc.replace_substring_regex(fractions, r"^.*\.", "")
        return len(pc.unique(pc.utf8_length(digits))) == 1
    return bool(pc.any(pc.match_substring_regex(text, _SURELY_FLOAT)).as_py())


def _true_positions(flags: pa.Array) -> list[int]:
    return pc.indices_nonzero(pc.fill_null(flags, False)).to_pylist()


def _shown(text: pa.Scalar) -> str:
    return repr(text.as_py()[:200].replace(MARK, "�"))
