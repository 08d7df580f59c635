"""The content of the inputs, as `overnight init` sees it: the size of pictures, a CSV file's form, and columns.

It reads the heads of five pictures, 64 KiB of a text file, or the first rows of a Parquet file. Overnight's own sources
read the rows, so that the columns have the same names as in a run.
"""

import io
import os
import re
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from overnight.tasks.ingest.kinds import Source
from overnight.tasks.rows import arrow_types, blocks
from overnight.tasks.rows.file_columns import files_in, holds_files
from overnight.tasks.storage.location import File, Location

HEAD_BYTES = 64 * 2**10
ROWS, PICTURES = 20, 5
WORDS_OF_A_SENTENCE = 6  # a name in a header line has fewer
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@dataclass(frozen=True)
class Inputs:
    """What init sees of the inputs. The fields from `names` on are for the columns of a table, as its first file shows.

    `source` is the kind of most files, or None. `rows` is the number of rows that each partition has, or 0 if it is
    unknown. `longest_side` is that of the first pictures, in pixels, or 0. `texts` has the column of the longest texts
    first. `image_uris` is a column of paths of images, and `image_files` one of whole image files. `settings` are those
    of a source that reads the table, and `comments` are on them. `notes` are sentences for the user.
    """

    source: str | None = None
    rows: int = 0
    has_folders: bool = False
    longest_side: int = 0
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    image_uris: str = ""
    image_files: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    comments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@cache
def sources() -> dict[str, Any]:
    """Return the classes of all sources, by their kinds."""
    return {leaf.model_fields["kind"].default: leaf for leaf in get_args(get_args(Source)[0])}


def look_at_rows(kind: str, files: Sequence[File]) -> Inputs:
    """Return what the first pictures, or the first rows of the first file, show to a source of this kind.

    Raise any error of reading a file.
    """
    if kind == "images":
        sides = []
        for file in files[:PICTURES]:
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
        source = sources()[kind](path=str(copy), **settings)
        units = source.units(list(source.files("all")))
        tables = [blocks.live_rows(block)[0] for block in source.read(units, source.common_schema(units))]
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    return replace(_columns(table), settings=settings, comments=comments, rows=len(table) * is_whole)


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


def _columns(table: pa.Table) -> Inputs:
    """Return the columns of a table, sorted into texts, numbers and images by their types and first values."""
    table = table.drop_columns([name for name in blocks.IDENTITY if name in table.column_names]).slice(0, ROWS)
    lengths, numbers, image_uris, image_files, longest_side = dict[str, float](), list[str](), "", "", 0
    for name in table.column_names:
        column = table[name].drop_null()
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
            longest_side = max(_longest_side(io.BytesIO(file.as_py() or b"")) for file in files_in(column))
            image_files = name if longest_side else ""
    texts = sorted(lengths, key=lambda name: -lengths[name])
    return Inputs(
        longest_side=longest_side,
        names=tuple(table.column_names),
        texts=tuple(texts),
        numbers=tuple(numbers),
        image_uris=image_uris,
        image_files=image_files,
    )


def _longest_side(file: IO[bytes]) -> int:
    """Return the longest side of a picture in pixels, or 0 if the file is no picture for Pillow."""
    try:
        with Image.open(file) as image:
            return max(image.size)
    except Exception:  # of any kind
        return 0
