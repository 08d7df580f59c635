"""TFRecord files of tf.train.Example: one file, one unit, its rows counted while reading.

Columns out: `row_id` (`path#n`), `uri`, and the features: bytes, float32 or int64, or lists of them. The first rows of
the first files decide which features have a single value per row, and this applies to every file. A record that does
not fit, or does not match its check sum, is quarantined alone. A feature without values is null. A feature that first
appears later is a list. TensorFlow is not needed. Ray Data's reader is not used for two reasons. One damaged record
ends its run. Its rows have no position in the file, which resuming needs.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.gzip_stream import unpacked
from overnight.tasks.ingest.formats.tf_example import ELEMENTS, features_of
from overnight.tasks.ingest.formats.tfrecord import records
from overnight.tasks.ingest.listing.list_files import file_units
from overnight.tasks.ingest.reading.table_blocks import (
    chunk,
    finish_text_file,
    is_corrupt_file,
    quarantined_rows,
    size_of,
    table_block,
)
from overnight.tasks.ingest.source import GIB, FolderSource, MaxRowBytes
from overnight.tasks.storage.location import File

ROWS_AT_ONCE = 2048
SAMPLE_ROWS, SAMPLE_FILES = 1000, 8

Features = dict[str, tuple[str, list[Any]]]


class TfRecord(FolderSource):
    """Every file below the directory that ends in .tfrecord or .tfrecords, also gzipped."""

    kind: Literal["tfrecord"] = "tfrecord"
    max_row_bytes: MaxRowBytes = GIB
    texts: Annotated[list[str], Field(description="Features of bytes that are text in UTF-8.")] = []

    extensions: ClassVar[tuple[str, ...]] = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        found: dict[str, list[pa.DataType]] = defaultdict(list)  # the type in each file that has the feature
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            kinds: dict[str, pa.DataType] = {}
            try:
                for record in islice(self._records(unit), SAMPLE_ROWS):
                    with contextlib.suppress(RowError):  # for one record, which is reported when it is read
                        for name, values in _features(record).items():
                            kinds[name] = _wider(kinds.get(name), self._type(name, *values))
            except Exception as error:
                if not is_corrupt_file(error):
                    raise
            for name, kind in kinds.items():
                found[name].append(kind)
        return pa.schema([(name, _of_most(kinds)) for name, kinds in sorted(found.items())])

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit, schema or pa.schema([]))

    def _read_unit(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        count, damage = 0, None
        found = islice(self._records(unit), unit["rows"])
        while damage is None:
            some, damage = chunk(found, ROWS_AT_ONCE, size_of)
            if not some:
                break
            yield from self._blocks(unit, count, some, schema)
            count += len(some)
        yield from finish_text_file(unit, count, damage)

    def _records(self, unit: dict) -> Iterator[bytes | RowError]:
        with self.file(unit, unit["size"]).open() as opened:
            yield from records(unpacked(opened), self.max_row_bytes)

    def _blocks(self, unit: dict, first: int, some: list[bytes | RowError], schema: pa.Schema) -> Iterator[pa.Table]:
        good: dict[int, dict[str, Any]] = {}
        errors: dict[int, Exception] = {}
        new: dict[str, pa.DataType] = {}
        for i, record in enumerate(some):
            try:
                good[i] = self._row(record, schema, new)
            except RowError as error:
                errors[first + i] = error
        if errors:
            yield quarantined_rows(unit, list(errors), list(errors.values()))
        if good:
            kinds = dict(zip(schema.names, schema.types, strict=True)) | new
            data = {name: pa.array([row.get(name) for row in good.values()], kind) for name, kind in kinds.items()}
            table = pa.table(data) if data else pa.table({"": pa.nulls(len(good))}).drop_columns([""])
            yield table_block(unit, first + np.array(list(good), np.int64), table)

    def _row(self, record: bytes | RowError, schema: pa.Schema, new: dict[str, pa.DataType]) -> dict[str, Any]:
        """Return the row of a record. Raise `RowError` if `record` is one, or has a value of another type.

        `new` collects the types of features that the schema lacks.
        """
        row = {}
        for name, (kind, values) in _features(record).items():
            one = self._type(name, kind, values[:1])
            known = schema.field(name).type if name in schema.names else new.setdefault(name, pa.list_(one))
            if known not in (one, pa.list_(one)) or (known == one and len(values) > 1):
                raise RowError(f"feature {name}: expected {known}, found {len(values)} of {one}")
            found = [_text(name, value) for value in values] if one == pa.string() else values
            row[name] = found[0] if known == one else found
        return row

    def _type(self, name: str, kind: str, values: list[Any]) -> pa.DataType:
        element = pa.string() if name in self.texts and kind == "bytes_list" else ELEMENTS[kind]
        return element if len(values) == 1 else pa.list_(element)


def _features(record: bytes | RowError) -> Features:
    """Return the features of a record. Raise `RowError`."""
    if isinstance(record, RowError):
        raise record
    return features_of(record)


def _of_most(kinds: list[pa.DataType]) -> pa.DataType:
    """Return the kind of value that most files have, or of equally frequent ones the first.

    It is a list if one of these files has a list of this kind.
    """
    values = [kind.value_type if pa.types.is_list(kind) else kind for kind in kinds]
    [(most, _)] = Counter(values).most_common(1)
    return pa.list_(most) if pa.list_(most) in kinds else most


def _wider(known: pa.DataType | None, found: pa.DataType) -> pa.DataType:
    """Return the type for both records of a feature: a list if one of them has a list, otherwise the first type."""
    if known is None or found == pa.list_(known):
        return found
    return known


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RowError(f"feature {name}: expected text in UTF-8, found {value[:50]!r}") from error
