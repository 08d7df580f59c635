"""A Lance table: one fragment of one version, one unit. Columns out: the table's, `row_id` (`path#n`) and `uri`.

The version is chosen once, when the manifest is taken, and must exist until the run ends. So clean up old versions of a
table only when no run reads it. The number `n` counts only the rows of the fragment that this version has. A column of
blobs has their bytes.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, PositiveInt

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import InputError, RowError
from overnight.tasks.ingest.reading.file_errors import translate_panics
from overnight.tasks.ingest.reading.table_blocks import BYTES_AT_ONCE, ROWS_AT_ONCE, as_schema, chosen_columns
from overnight.tasks.ingest.reading.unit_rows import RowRange, counted_units
from overnight.tasks.ingest.source import Columns, TableSource, kept_by_version
from overnight.tasks.storage.location import File
from overnight.tasks.storage.object_store import object_store_uri, storage_options

# a blob may be in a file of its own, whose size the fragment does not have
ROWS_OF_BLOBS_AT_ONCE = 32
BLOB = "lance.blob"  # the beginning of the names of Lance's types for blobs
# in the metadata of a column of blobs before version 2.2 of the format
ENCODING = b"lance-encoding:blob"
DATA = "/data/"  # the path between a table's place and its files


class Lance(TableSource):
    """The rows of a Lance table."""

    kind: Literal["lance"] = "lance"
    version: Annotated[
        PositiveInt | None,
        Field(description="The version of the table; default: the newest when the inputs are listed."),
    ] = None
    columns: Columns = None

    def snapshot(self, partition: str) -> str:
        return str(self._table(partition).version)

    def files(self, partition: str) -> Iterator[File]:
        table, root = self._table(partition), object_store_uri(self.location(partition)).rstrip("/")
        for fragment in table.get_fragments():
            metadata = json.dumps(fragment.metadata.to_json(), sort_keys=True)
            files = fragment.data_files()
            version = {
                "fragment": fragment.fragment_id,
                "rows": fragment.count_rows(),
                "digest": hashlib.sha256(metadata.encode()).hexdigest()[:16],
            }
            size = sum(file.file_size_bytes or 0 for file in files)
            yield File(files[0].path, f"{root}{DATA}{files[0].path}", size, json.dumps(version))

    def units(self, files: list[File]) -> pa.Table:
        def parts(file: File) -> list[RowRange]:
            version = json.loads(file.version)
            return [RowRange(0, version["rows"], version["fragment"], file.size)]

        return counted_units(files, parts)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema:
        stored = self._table(partition).schema
        schema = chosen_columns(stored, self.columns)
        for position, field in enumerate(schema):
            if _is_blob(stored.field(field.name)):
                schema = schema.set(position, pa.field(field.name, pa.large_binary()))
        return schema

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[pa.Table]:
        table = _opened(unit["uri"].rpartition(DATA)[0], self.version, self.anonymous)
        fragment = table.get_fragment(unit["row_group"])
        self._look(fragment, unit)
        has_blobs = any(_is_blob(table.schema.field(name)) for name in schema.names)
        row_bytes = max(unit["size"] / max(unit["rows"], 1), 1)
        most_rows = ROWS_OF_BLOBS_AT_ONCE if has_blobs else ROWS_AT_ONCE
        rows_at_once = min(max(int(BYTES_AT_ONCE / row_bytes), 1), most_rows)
        try:
            with translate_panics():
                for batch in fragment.to_batches(
                    columns=schema.names, batch_size=rows_at_once, blob_handling="all_binary"
                ):
                    yield as_schema(pa.Table.from_batches([batch]), schema)
        except (pa.ArrowInvalid, OSError, RuntimeError) as error:
            # Lance reports the same error for an unreachable store and a broken file
            self._look(fragment, unit)
            reason = str(error).partition(", /")[0].removeprefix("External error: ")
            raise RowError(f"expected a fragment as Lance wrote it: {reason}") from error

    def _look(self, fragment: Any, unit: dict[str, Any]) -> None:
        """Raise the error of the fragment's first file that is gone or has another size, if it is below the table."""
        root = unit["uri"].rpartition(DATA)[0]
        for file in fragment.data_files():
            if file.base_id is None and any(field >= 0 for field in file.fields):
                self.file({"uri": f"{root}{DATA}{file.path}"}, file.file_size_bytes).look()

    def _table(self, partition: str) -> Any:
        return _opened(object_store_uri(self.location(partition)), self.version, self.anonymous)


def _is_blob(field: pa.Field) -> bool:
    return str(getattr(field.type, "extension_name", "")).startswith(BLOB) or ENCODING in (field.metadata or {})


@kept_by_version
def _opened(uri: str, version: int | None, anonymous: bool) -> Any:
    """Open the table. Raise `InputError` if there is no such table or version."""
    lance: Any = require_extra("lance", "source.kind: lance", "ingest")
    try:
        with translate_panics():
            return lance.dataset(uri, version=version, storage_options=storage_options(uri, anonymous))
    except (ValueError, RuntimeError) as error:
        suffix = "" if version is None else f" with the version {version}"
        reason = str(error).partition(", /")[0]
        raise InputError(f"source.path: expected a Lance table{suffix} at {uri}: {reason}.") from error
