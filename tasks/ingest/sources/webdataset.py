"""WebDataset shards: one tar file, one unit. Consecutive files whose names agree up to the first dot are one row.

Columns out: `row_id` (`shard.tar#n`), `uri`, `key` (the common name), and one column per extension. `txt` is text,
`cls` a number, `json` the file's text, and all others the file's bytes. A sample whose text is not UTF-8, that has two
files of one name, or whose files are not next to each other, is quarantined alone. If a shard breaks off, the rest is
one bad row. Ray Data's reader is not used: its run would end there, and its rows have no position in the shard.
"""

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.formats.gzip_stream import unpacked
from overnight.tasks.ingest.formats.tar_samples import Sample, keys_apart, samples
from overnight.tasks.ingest.reading.file_errors import passing_over_damage
from overnight.tasks.ingest.reading.unit_rows import Judged, chunks, judged_rows, table_of
from overnight.tasks.ingest.source import GIB, MaxRowBytes
from overnight.tasks.rows.arrow_types import types_by_name

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

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        kinds = {"key": pa.string()}
        if self.columns is not None:
            for name, extension in self.columns.items():
                kinds[name] = _type(extension)
            return pa.schema(list(kinds.items()))
        extensions = set[str]()
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            with passing_over_damage():
                for sample in islice(self._samples(unit), SAMPLE_ROWS):
                    if not sample.damage:
                        extensions.update(sample.files)
        for name in sorted(extensions - {"key"}):
            kinds[name] = _type(name)
        return pa.schema(list(kinds.items()))

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        apart: set[str] | None = None  # None until there is a reason to search the shard for them
        usual: set[str] = set()
        rows = islice(self._samples(unit), unit["rows"])
        for chunk in chunks(rows, ROWS_AT_ONCE, lambda sample: sum(map(len, sample.files.values()))):
            usual = usual or set(chunk[0].files)
            if apart is None and (len(usual) == 1 or any(set(sample.files) != usual for sample in chunk)):
                with self.file(unit, unit["size"]).open() as handle:
                    apart = keys_apart(unpacked(handle))
            yield self._judged(chunk, apart or set(), schema)

    def _samples(self, unit: dict) -> Iterator[Sample]:
        with self.file(unit, unit["size"]).open() as handle:
            yield from samples(unpacked(handle), self.max_row_bytes)

    def _judged(self, chunk: list[Sample], apart: set[str], schema: pa.Schema) -> Judged:
        for sample in chunk:
            if sample.key in apart:
                sample.damage = sample.damage or RowError(APART.format(sample.key))
        rows, errors = judged_rows(chunk, self._row)
        kinds = types_by_name(schema)
        for name in sorted(set(chain.from_iterable(rows)).difference(kinds)):
            kinds[name] = _type(name)
        return Judged(table_of(rows, kinds), errors)

    def _row(self, sample: Sample) -> dict[str, Any]:
        """Return the row of a sample. Raise `RowError` if the sample is damaged, or does not fit the columns."""
        if sample.damage:
            raise sample.damage
        if self.columns is None:
            if "key" in sample.files:
                raise RowError(f"{sample.key}.key: key is the column of the names; rename the file, or name columns")
            extensions = dict(zip(sample.files, sample.files, strict=True))
        else:
            extensions = {name: _first(choices, sample) for name, choices in self.columns.items()}
        row: dict[str, Any] = {"key": sample.key}
        for name, extension in extensions.items():
            row[name] = _value(sample, extension)
        return row


def _first(choices: str, sample: Sample) -> str:
    for extension in choices.lower().split(";"):
        if extension in sample.files:
            return extension
    raise RowError(f"sample {sample.key}: expected a file that ends in {choices}, found {', '.join(sample.files)}")


def _type(extension: str) -> pa.DataType:
    last = re.split("[;.]", extension.lower())[-1]
    if last in NUMBERS:
        return pa.int64()
    return pa.string() if last in TEXTS else pa.large_binary()


def _value(sample: Sample, extension: str) -> Any:
    content, kind = sample.files[extension], _type(extension)
    if kind == pa.large_binary():
        return content
    sentence = "a whole number of 64 bits"
    try:
        if kind == pa.string():
            sentence = "text in UTF-8"
            return content.decode()
        return pa.scalar(int(content), kind).as_py()
    except (ValueError, OverflowError) as error:
        raise RowError(f"{sample.key}.{extension}: expected {sentence}, found {content[:50]!r}") from error
