"""WebDataset shards: one tar file, one unit. Consecutive files whose names agree up to the first dot are one row.

Columns out: `row_id` (`shard.tar#n`), `uri`, `key` (the common name), and one column per extension. `txt` is text,
`cls` a number, `json` the file's text, and all others the file's bytes. A sample whose text is not UTF-8, that has two
files of one name, or whose files are not next to each other, is quarantined alone. If the samples of a shard differ in
their extensions, or have one file each, the shard is read once more to find such samples. If a shard breaks off, the
rest is one bad row. Ray Data's reader is not used: its run would end there, and its rows have no position in the shard.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.gzip_stream import unpacked
from overnight.tasks.ingest.formats.tar_samples import Sample, keys_apart, samples
from overnight.tasks.ingest.listing.list_files import file_units
from overnight.tasks.ingest.reading.table_blocks import (
    chunk,
    finish_text_file,
    is_corrupt_file,
    quarantined_rows,
    table_block,
)
from overnight.tasks.ingest.source import GIB, FolderSource, MaxRowBytes
from overnight.tasks.storage.location import File

ROWS_AT_ONCE = 1024
SAMPLE_ROWS, SAMPLE_FILES = 100, 4
APART = (
    "sample {}: expected its files next to each other in the archive, found others between them. Write the archive in "
    "the order of the names, for example with tar --sort=name"
)
TEXTS = {"txt", "text", "transcript", "caption", "json", "jsn"}
NUMBERS = {"cls", "cls2", "index", "inx", "count"}


class WebDataset(FolderSource):
    """Every file below the directory that ends in .tar, also gzipped."""

    kind: Literal["webdataset"] = "webdataset"
    max_row_bytes: MaxRowBytes = GIB
    columns: Annotated[
        dict[str, str] | None,
        Field(description="Extensions by column, for example {image: jpg;png}: the first that exists; default: all."),
    ] = None

    rows_are_files: ClassVar[bool] = True
    holds_texts: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz")

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        if self.columns is not None:
            return pa.schema([("key", pa.string()), *((name, _type(found)) for name, found in self.columns.items())])
        found: dict[str, None] = {}
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            try:
                for sample in islice(self._samples(unit), SAMPLE_ROWS):
                    if not sample.damage:
                        found |= dict.fromkeys(sample.files)
            except Exception as error:
                if not is_corrupt_file(error):
                    raise
        return pa.schema([("key", pa.string()), *((name, _type(name)) for name in sorted(found) if name != "key")])

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit, schema or pa.schema([("key", pa.string())]))

    def _read_unit(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        count, damage = 0, None
        apart: set[str] | None = None  # None until there is a reason to search the shard for them
        usual: set[str] = set()
        found = islice(self._samples(unit), unit["rows"])
        while damage is None:
            some, damage = chunk(found, ROWS_AT_ONCE, lambda sample: sum(map(len, sample.files.values())))
            if not some:
                break
            usual = usual or set(some[0].files)
            if apart is None and (len(usual) == 1 or any(set(sample.files) != usual for sample in some)):
                apart = self._keys_apart(unit)
            for sample in some:
                if apart and sample.key in apart:
                    sample.damage = sample.damage or RowError(APART.format(sample.key))
            yield from self._blocks(unit, count, some, schema)
            count += len(some)
        yield from finish_text_file(unit, count, damage)

    def _samples(self, unit: dict) -> Iterator[Sample]:
        with self.file(unit, unit["size"]).open() as opened:
            yield from samples(unpacked(opened), self.max_row_bytes)

    def _keys_apart(self, unit: dict) -> set[str]:
        with self.file(unit, unit["size"]).open() as opened:
            return keys_apart(unpacked(opened))

    def _blocks(self, unit: dict, first: int, some: list[Sample], schema: pa.Schema) -> Iterator[pa.Table]:
        good, errors = {}, {}
        for i, sample in enumerate(some):
            try:
                good[i] = self._row(sample)
            except RowError as error:
                errors[first + i] = error
        if errors:
            yield quarantined_rows(unit, list(errors), list(errors.values()))
        if good:
            new = dict.fromkeys(name for row in good.values() for name in row if name not in schema.names)
            kinds = [*zip(schema.names, schema.types, strict=True), *((name, _type(name)) for name in sorted(new))]
            data = {name: pa.array([row.get(name) for row in good.values()], kind) for name, kind in kinds}
            yield table_block(unit, first + np.array(list(good), np.int64), pa.table(data))

    def _row(self, sample: Sample) -> dict[str, Any]:
        """Return the row of a sample. Raise `RowError` if the sample is damaged, or does not fit the columns."""
        if sample.damage:
            raise sample.damage
        if self.columns is None:
            if "key" in sample.files:
                raise RowError(f"{sample.key}.key: key is the column of the names; rename the file, or name columns")
            chosen = {extension: extension for extension in sample.files}
        else:
            chosen = {name: _first(wanted, sample) for name, wanted in self.columns.items()}
        return {"key": sample.key} | {name: _value(sample, extension) for name, extension in chosen.items()}


def _first(wanted: str, sample: Sample) -> str:
    found = next((extension for extension in wanted.lower().split(";") if extension in sample.files), None)
    if found is None:
        there = ", ".join(sample.files)
        raise RowError(f"sample {sample.key}: expected a file that ends in {wanted}, found {there}")
    return found


def _last(extension: str) -> str:
    return re.split("[;.]", extension.lower())[-1]


def _type(extension: str) -> pa.DataType:
    if _last(extension) in NUMBERS:
        return pa.int64()
    return pa.string() if _last(extension) in TEXTS else pa.large_binary()


def _value(sample: Sample, extension: str) -> Any:
    content, kind = sample.files[extension], _type(extension)
    if kind == pa.large_binary():
        return content
    try:
        return content.decode() if kind == pa.string() else pa.scalar(int(content), kind).as_py()
    except (ValueError, OverflowError) as error:
        expected = "text in UTF-8" if kind == pa.string() else "a whole number of 64 bits"
        raise RowError(f"{sample.key}.{extension}: expected {expected}, found {content[:50]!r}") from error
