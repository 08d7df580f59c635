"""The content of the inputs, as `overnight init` sees it: the size of pictures, a CSV file's form, and columns.

It reads the heads of five pictures, 64 KiB of a text file, or the first rows of a Parquet file. Overnight's own sources
read the rows, so that the columns have the same names as in a run.
"""

import io
import math
import os
import re
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from overnight.tasks.config.plugins import leaves_by_kind
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.rows import arrow_types, blocks
from overnight.tasks.rows.arrow_types import files_in, holds_files
from overnight.tasks.storage.location import File, Location

HEAD_BYTES = 64 * 2**10
ROWS, PICTURES = 20, 5
WORDS_OF_A_SENTENCE = 6  # a name in a header line has fewer
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
SOURCES = leaves_by_kind(Source)


@dataclass(frozen=True)
class Inputs:
    """What init sees of the inputs. From `names` on, these are the columns of a table."""

    source: str | None = None  # the kind of most files
    rows: int = 0  # of each partition; 0 if unknown
    has_folders: bool = False
    longest_side: int = 0  # of a few pictures, in pixels; 0 if unknown
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # the column of the longest texts first
    numbers: tuple[str, ...] = ()
    image_uris: str = ""  # a column of paths of images
    image_files: str = ""  # a column of whole image files
    settings: Mapping[str, Any] = field(default_factory=dict)  # of a source that reads the table
    comments: tuple[str, ...] = ()  # on these settings
    notes: tuple[str, ...] = ()  # sentences for the user


@cache
def source_kinds() -> dict[str, tuple[str, ...]]:
    """Return the kinds of sources of files that require only a path, each with its endings."""
    kinds = {}
    for kind, leaf in SOURCES.items():
        required = {name for name, setting in leaf.model_fields.items() if setting.is_required()}
        if getattr(leaf, "extensions", ()) and required <= {"path"}:
            kinds[kind] = leaf.extensions
    return kinds


def look_at_rows(kind: str, files: Sequence[File]) -> Inputs:
    """Return what a few pictures, or the first rows of the first file, show."""
    if kind == "images":
        sides = []
        for file in files[:: math.ceil(len(files) / PICTURES)]:  # the first ones may be in a folder of thumbnails
            with Location(file.uri).open() as content:
                sides.append(_longest_side(content))
        return Inputs(longest_side=max(sides) if all(sides) else 0)
    if kind == "parquet":
        with Location(files[0].uri).open() as content:
            parquet = pq.ParquetFile(content)
            batches = list(islice(parquet.iter_batches(batch_size=ROWS), 1))
            table = pa.Table.from_batches(batches, schema=parquet.schema_arrow)
            return replace(_columns(table), rows=parquet.metadata.num_rows)
    if kind not in ("csv", "jsonl"):
        return Inputs()
    with tempfile.TemporaryDirectory(prefix="overnight-init-") as folder:
        head, is_whole = _head(files[0])
        name = Path(files[0].path).name.lower().removesuffix(".gz")
        copy = Path(folder, f"head{os.path.splitext(name)[1]}")
        copy.write_bytes(head)
        settings, comments = _form(copy, head) if kind == "csv" else ({}, ())
        source = SOURCES[kind](path=str(copy), **settings)
        units = source.units(list(source.files("all")))
        tables = [blocks.live_rows(block)[0] for block in source.read(units, source.common_schema(units))]
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    return replace(_columns(table), settings=settings, comments=comments, rows=len(table) * is_whole)


def _head(file: File) -> tuple[bytes, bool]:
    """Return the first lines of a file, decompressed, and True if they are the whole file."""
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
        # Rows of another length stay: a run quarantines them
        function = "sniff_csv($file, ignore_errors = true, strict_mode = false)"
        query = f"SELECT Delimiter, HasHeader, Columns FROM {function}"
        [(delimiter, has_header, columns)] = connection.execute(query, {"file": str(file)}).fetchall()
    settings = dict[str, Any]()
    if delimiter != ("\t" if file.suffix == ".tsv" else ",") and len(columns) > 1:
        settings["delimiter"] = delimiter
    if has_header and not any(_is_value(column["name"]) for column in columns):
        return settings, ()
    settings["column_names"] = [f"column_{number}" for number in range(1, len(columns) + 1)]
    first = head.decode(errors="replace").splitlines()[0]
    comment = "The file has no header line; rename the columns as you like. Its first line: "
    return settings, (f"{comment}{first:.60}",)


def _is_value(name: str) -> bool:
    is_sentence = len(name.split()) >= WORDS_OF_A_SENTENCE
    return is_sentence or bool(SCHEME.fullmatch(name)) or _is_image_path(name)


def _is_image_path(text: str) -> bool:
    return text.strip().split("?")[0].lower().endswith(SOURCES["images"].extensions)


def _columns(table: pa.Table) -> Inputs:
    """Return the columns of a table, sorted into texts, numbers and images by their first values."""
    names = [name for name in table.column_names if name not in blocks.IDENTITY]
    lengths, numbers = dict[str, float](), list[str]()
    image_uris, image_files, longest_side = "", "", 0
    for name in names:
        column = table[name].slice(0, ROWS).drop_null()
        if not len(column):
            continue
        inner = column.type.value_type if arrow_types.is_list(column.type) else column.type
        if arrow_types.is_text(column.type):
            values = column.to_pylist()
            if all(map(_is_image_path, values)):
                image_uris = image_uris or name
            elif not all(map(SCHEME.fullmatch, values)):
                lengths[name] = sum(map(len, values)) / len(values)
        elif pa.types.is_integer(inner) or pa.types.is_floating(inner):
            numbers.append(name)
        elif holds_files(column.type) and not image_files:
            contents = files_in(column).to_pylist()
            longest_side = max(_longest_side(io.BytesIO(content or b"")) for content in contents)
            image_files = name if longest_side else ""
    texts = sorted(lengths, key=lambda name: -lengths[name])
    return Inputs(
        longest_side=longest_side,
        names=tuple(names),
        texts=tuple(texts),
        numbers=tuple(numbers),
        image_uris=image_uris,
        image_files=image_files,
    )


def _longest_side(file: IO[bytes]) -> int:
    """Return the longest side of a picture, or 0 if Pillow reads none."""
    try:
        with Image.open(file) as image:
            return max(image.size)
    except Exception:  # of any kind
        return 0
