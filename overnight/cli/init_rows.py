"""The first rows of a table, as `overnight init` looks at them: a CSV file's form, and the columns of texts and images.

It reads 64 KiB of a text file, and the first rows of a Parquet file. DuckDB's sniffer finds the form of a CSV file.
Overnight's own sources read the rows, so that the columns have the same names as in a run.
"""

import io
import os
import re
import tempfile
import zlib
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from overnight.tasks.ingest.kinds import Source
from overnight.tasks.rows import arrow_types, blocks
from overnight.tasks.rows.arrow_types import files_in, holds_files
from overnight.tasks.storage.location import File, Location

HEAD_BYTES = 64 * 2**10
ROWS = 20
WORDS_OF_A_SENTENCE = 6  # a name in a header line has fewer
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@dataclass(frozen=True)
class Columns:
    """The columns of a table, with the settings of a source that reads it and comments on these settings.

    `texts` are the names of text columns, the column of the longest texts first. `image_uris` names a column of paths
    of images, and `image_files` a column of whole image files. `rows` is the number of rows of the file, or 0 if
    unknown.
    """

    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    image_uris: str = ""
    image_files: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    comments: tuple[str, ...] = ()
    rows: int = 0


@cache
def sources() -> dict[str, Any]:
    """Return the classes of all sources, by their kinds."""
    return {leaf.model_fields["kind"].default: leaf for leaf in get_args(get_args(Source)[0])}


def look_at_rows(kind: str, file: File) -> Columns:
    """Return the columns that the first rows of a file show. They are empty if files of this kind are not tables.

    `kind` is the kind of the source. Raise any error of reading the file.
    """
    if kind == "parquet":
        return _columns_of_parquet(file)
    if kind not in ("csv", "jsonl"):
        return Columns()
    with tempfile.TemporaryDirectory(prefix="overnight-init-") as folder:
        head, is_whole = _head(file)
        name = Path(file.path).name.lower().removesuffix(".gz")
        copy = Path(folder, f"head{os.path.splitext(name)[1]}")
        copy.write_bytes(head)
        settings, comments = _form(copy, head) if kind == "csv" else ({}, ())
        source = sources()[kind](path=str(copy), **settings)
        units = source.units(list(source.files("all")))
        tables = [blocks.live_rows(block)[0] for block in source.read(units, source.common_schema(units))]
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    rows = len(table) if is_whole else 0
    return replace(_columns(table), settings=settings, comments=comments, rows=rows)


def _columns_of_parquet(file: File) -> Columns:
    with Location(file.uri).open() as content:
        parquet = pq.ParquetFile(content)
        batches = list(islice(parquet.iter_batches(batch_size=ROWS), 1))
        table = pa.Table.from_batches(batches, schema=parquet.schema_arrow)
        return replace(_columns(table), rows=parquet.metadata.num_rows)


def _head(file: File) -> tuple[bytes, bool]:
    """Return the whole lines at the beginning of a file, decompressed, and whether they are the whole file."""
    with Location(file.uri).open() as content:
        data = content.read(HEAD_BYTES)
    is_whole = len(data) < HEAD_BYTES
    if file.path.lower().endswith(".gz"):
        data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, HEAD_BYTES)
        is_whole = False
    if is_whole or b"\n" not in data:
        return data, is_whole
    return data[: data.rindex(b"\n") + 1], False


def _form(file: Path, head: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings of a source for a CSV file, and comments on them."""
    import duckdb

    if not head.strip():
        return {}, ()
    with duckdb.connect() as connection:
        [(delimiter, has_header, columns)] = connection.execute(  # rows of another length stay: a run quarantines them
            "SELECT Delimiter, HasHeader, Columns FROM sniff_csv($file, ignore_errors = true, strict_mode = false)",
            {"file": str(file)},
        ).fetchall()
    settings = dict[str, Any]()
    if delimiter != ("\t" if file.suffix == ".tsv" else ",") and len(columns) > 1:
        settings["delimiter"] = delimiter
    if has_header and not any(_is_value(column["name"]) for column in columns):
        return settings, ()
    settings["column_names"] = [f"column_{number}" for number in range(1, len(columns) + 1)]
    first = head.decode(errors="replace").splitlines()[0]
    comment = f"The file has no header line; rename the columns as you like. Its first line: {first:.60}"
    return settings, (comment,)


def _is_value(name: str) -> bool:
    return len(name.split()) >= WORDS_OF_A_SENTENCE or bool(SCHEME.fullmatch(name)) or _is_image_path(name)


def _is_image_path(text: str) -> bool:
    return text.strip().split("?")[0].lower().endswith(sources()["images"].extensions)


def _columns(table: pa.Table) -> Columns:
    """Return the columns of a table, sorted into texts and images by their first values."""
    table = table.drop_columns([name for name in blocks.IDENTITY if name in table.column_names]).slice(0, ROWS)
    lengths, image_uris, image_files = dict[str, float](), "", ""
    for name in table.column_names:
        column = table[name].drop_null()
        if not len(column):
            continue
        if arrow_types.is_text(column.type):
            values = column.to_pylist()
            if all(map(_is_image_path, values)):
                image_uris = image_uris or name
            elif not all(map(SCHEME.fullmatch, values)):
                lengths[name] = sum(map(len, values)) / len(values)
        elif holds_files(column.type) and _is_image(next(iter(files_in(column))).as_buffer()):
            image_files = image_files or name
    texts = sorted(lengths, key=lambda name: -lengths[name])
    return Columns(tuple(table.column_names), tuple(texts), image_uris, image_files)


def _is_image(content: pa.Buffer) -> bool:
    try:
        with Image.open(io.BytesIO(content)):
            return True
    except Exception:  # of any kind: it is not an image for Pillow
        return False
