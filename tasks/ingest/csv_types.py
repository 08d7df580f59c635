"""Columns of text as the types that a CSV source gives them, row by row where one does not fit."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from tasks.errors import RowError
from tasks.ingest.text_file import MARK

_CONVERT = pcsv.ConvertOptions()


def known_types(types: dict[str, str]) -> dict[str, str]:
    """Arrow type names by column, as they are. Raises `ValueError` for one that text cannot become."""
    for column, name in types.items():
        try:
            _convert_column(pa.array([], pa.string()), pa.field(column, pa.type_for_alias(name)))
        except (ValueError, pa.ArrowNotImplementedError):
            raise ValueError(f"{column}: expected an Arrow type such as int64 or string, found {name}") from None
    return types


def convert(data: pa.Table, schema: pa.Schema, is_marked: bool) -> tuple[pa.Table, dict[int, Exception]]:
    """Text columns as `schema` says, and the rows that have no such value, each with its error.

    is_marked: some of the text was no UTF-8; its rows are among them.
    """
    errors: dict[int, Exception] = {}
    columns = []
    for field in schema:
        text = data[field.name].combine_chunks()
        column, failed = _convert_column(text, field)
        columns.append(column)
        errors = (_not_text(text, field.name) if is_marked else {}) | failed | errors
    return pa.table(columns, schema=pa.schema([(f.name, f.type) for f in schema])), errors


def _not_text(text: pa.Array, name: str) -> dict[int, Exception]:
    places = pc.indices_nonzero(pc.fill_null(pc.match_substring(text, MARK), False)).to_pylist()
    return {i: RowError(f"column {name}: expected UTF-8, found {_shown(text[i].as_py())}") for i in places}


def _convert_column(text: pa.Array, field: pa.Field) -> tuple[pa.Array, dict[int, Exception]]:
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return text.cast(field.type), {}
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.is_in(text, pa.array(_CONVERT.null_values)), pa.scalar(None, pa.string()), text)
    try:
        return _cast(text, field.type), {}
    except pa.ArrowInvalid:
        errors: dict[int, Exception] = {}
        values = text.to_pylist()
        for i, value in enumerate(values):
            try:
                _cast(pa.array([value], pa.string()), field.type)
            except pa.ArrowInvalid:
                errors[i] = RowError(f"column {field.name}: expected {field.type}, found {_shown(value)}")
                values[i] = None
        return _cast(pa.array(values, pa.string()), field.type), errors


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_boolean(kind):
        return pc.cast(text, kind)
    true, false = pa.array(_CONVERT.true_values), pa.array(_CONVERT.false_values)
    known = pc.fill_null(pc.or_(pc.is_in(text, true), pc.is_in(text, false)), False)
    if not pc.all(pc.or_(known, pc.is_null(text)), min_count=0).as_py():
        raise pa.ArrowInvalid("not a boolean")
    return pc.if_else(pc.is_null(text), pa.scalar(None, pa.bool_()), pc.is_in(text, true))


def _shown(text: str) -> str:
    return repr(text[:200].replace(MARK, "�"))
