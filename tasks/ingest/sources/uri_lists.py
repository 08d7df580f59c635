"""Reads the rows of a list of URIs, for any kind of table. This file does not read the content at a URI."""

import os
import re
from collections.abc import Iterator
from typing import Any

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.formats.text_lines import whole_lines
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.versioned_file import SourceFile
from overnight.tasks.rows import blocks
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.location import File

TEXT = (".txt", ".txt.gz")
TABLES: tuple[type[FileSource], ...] = (Parquet, Csv, Jsonl)
EXTENSIONS = (*TEXT, *(extension for kind in TABLES for extension in kind.extensions))
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def listed(file: File, uri_column: str, keep: list[str], anonymous: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield for each row of a list its name (`list.csv#n`), its URI, and the values of the columns `keep` by name."""
    if file.path.lower().endswith(TEXT):
        for n, line in enumerate(_lines(file, anonymous)):
            yield f"{file.path}#{n}", _absolute(line, file), {}
        return
    kind = next(kind for kind in TABLES if file.path.lower().endswith(kind.extensions))
    source = kind(path=file.uri, anonymous=anonymous)
    units = source.units([file])
    column = f"source_{uri_column}" if uri_column in blocks.IDENTITY else uri_column
    for block in source.read(units, source.common_schema(units)):
        missing = sorted({column, *keep} - set(block.column_names))
        if missing and (block["__state"].to_numpy() == blocks.LIVE).any():
            columns = ", ".join(blocks.visible(block).drop_columns(list(blocks.IDENTITY)).column_names)
            raise InputError(f"{file.uri}: expected a column {missing[0].removeprefix('source_')}, found {columns}.")
        for row in block.to_pylist():
            if row["__state"] == blocks.QUARANTINED:
                yield row["row_id"], "", {"error": row["__error_message"]}
            elif row["__state"] == blocks.LIVE and not isinstance(row[column], str):
                yield row["row_id"], "", {"error": f"column {uri_column}: expected a URI, found {row[column]!r:.80}"}
            elif row["__state"] == blocks.LIVE:
                yield row["row_id"], _absolute(row[column], file), {name: row[name] for name in keep}


def _lines(file: File, anonymous: bool) -> Iterator[str]:
    try:
        for piece in whole_lines(SourceFile(file.uri, file.version, file.size, anonymous)):
            yield from filter(None, (line.decode().strip() for line in piece.split(b"\n")))
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        raise InputError(f"{file.uri}: cannot read the list: {error_message(error)}") from error


def _absolute(uri: str, file: File) -> str:
    """Return the absolute URI; paths without a scheme are relative to the list."""
    uri = uri.strip()
    if not uri or _SCHEME.match(uri) or os.path.isabs(uri):
        return uri
    return f"{file.uri.rpartition('/')[0]}/{uri}"
