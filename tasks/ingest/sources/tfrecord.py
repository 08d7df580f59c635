"""TFRecord files of tf.train.Example: one file, one unit, its rows counted while reading.

Columns out: `row_id` (`path#n`), `uri`, and the features: bytes, float32 or int64, or lists of them. The first rows of
the first files decide which features have a single value per row. A record that does not fit, or does not match its
check sum, is quarantined alone. A feature without values is null, and one that first appears later is a list. Ray
Data's reader is not used: one damaged record ends its run, and its rows have no position, which resuming needs.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.formats.gzip_stream import unpacked
from overnight.tasks.ingest.formats.tfrecord import ELEMENTS, features_of, records
from overnight.tasks.ingest.reading.file_errors import passing_over_damage
from overnight.tasks.ingest.reading.unit_rows import Judged, chunks, judged_rows, size_of, table_of, without_error
from overnight.tasks.ingest.source import GIB, MaxRowBytes
from overnight.tasks.rows.arrow_types import types_by_name

ROWS_AT_ONCE = 2048
SAMPLE_ROWS, SAMPLE_FILES = 1000, 8


class TfRecord(FolderSource):
    """Every file below the directory that ends in .tfrecord or .tfrecords, also gzipped."""

    kind: Literal["tfrecord"] = "tfrecord"
    max_row_bytes: MaxRowBytes = GIB
    texts: Annotated[list[str], Field(description="Features of bytes that are text in UTF-8.")] = []

    extensions: ClassVar[tuple[str, ...]] = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        kinds_by_file: dict[str, list[pa.DataType]] = defaultdict(list)
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            kinds: dict[str, pa.DataType] = {}
            with passing_over_damage():
                for record in islice(self._records(unit), SAMPLE_ROWS):
                    # for one record, which is reported when it is read
                    with contextlib.suppress(RowError):
                        for name, (kind, values) in features_of(without_error(record)).items():
                            kinds[name] = _wider(kinds.get(name), self._type(name, kind, values))
            for name, data_type in kinds.items():
                kinds_by_file[name].append(data_type)
        return pa.schema([(name, _of_most(kinds)) for name, kinds in sorted(kinds_by_file.items())])

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        for chunk in chunks(islice(self._records(unit), unit["rows"]), ROWS_AT_ONCE, size_of):
            kinds = types_by_name(schema)
            rows, errors = judged_rows(chunk, partial(self._row, kinds=kinds))
            yield Judged(table_of(rows, kinds), errors)

    def _records(self, unit: dict) -> Iterator[bytes | RowError]:
        with self.file(unit, unit["size"]).open() as handle:
            yield from records(unpacked(handle), self.max_row_bytes)

    def _row(self, record: bytes | RowError, kinds: dict[str, pa.DataType]) -> dict[str, Any]:
        """Return the row of a record, and add the types of new features to `kinds`. Raise `RowError` for a misfit."""
        row = {}
        for name, (kind, values) in features_of(without_error(record)).items():
            element = self._type(name, kind, values[:1])
            common = kinds.setdefault(name, pa.list_(element))
            if common not in (element, pa.list_(element)) or (common == element and len(values) > 1):
                raise RowError(f"feature {name}: expected {common}, found {len(values)} of {element}")
            items = values
            if element == pa.string():
                items = [_text(name, value) for value in values]
            row[name] = items[0] if common == element else items
        return row

    def _type(self, name: str, kind: str, values: list[Any]) -> pa.DataType:
        element = ELEMENTS[kind]
        if name in self.texts and kind == "bytes_list":
            element = pa.string()
        return element if len(values) == 1 else pa.list_(element)


def _of_most(kinds: list[pa.DataType]) -> pa.DataType:
    """Return the kind of value that most files have, or the first; a list if one of these files has such a list."""
    values = [kind.value_type if pa.types.is_list(kind) else kind for kind in kinds]
    [(most, _)] = Counter(values).most_common(1)
    return pa.list_(most) if pa.list_(most) in kinds else most


def _wider(kind: pa.DataType | None, other: pa.DataType) -> pa.DataType:
    """Return the type for both records of a feature: a list if one of them has a list, otherwise the first type."""
    if kind is None or other == pa.list_(kind):
        return other
    return kind


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RowError(f"feature {name}: expected text in UTF-8, found {value[:50]!r}") from error
