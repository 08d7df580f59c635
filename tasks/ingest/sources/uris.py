"""Lists of URIs, one row per URI's content.

Columns out: `row_id` (`list.csv#n`), `uri`, the content under the name in `content`, and the columns in `keep`. The
lists are Parquet, CSV, JSON Lines, or texts with one URI per line. A URI refers to any storage or http(s), or is a path
relative to the list. The listing reads only the lists. The content at a URI has no version, and is read as it is at the
time of fetching. A URI that cannot be fetched is quarantined alone.
"""

import hashlib
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import InputError, JobError, OvernightError, RowError, ServiceUnavailable
from overnight.tasks.ingest.formats.json_types import column_of, inferred_type
from overnight.tasks.ingest.formats.text_lines import whole_lines
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file
from overnight.tasks.ingest.reading.unit_rows import values_of
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.text import decoded
from overnight.tasks.ingest.sources.whole_files import WholeFiles
from overnight.tasks.ingest.versioned_file import SourceFile, read_whole
from overnight.tasks.rows import blocks
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.file_info import TooLarge
from overnight.tasks.storage.filesystems import WEB, protocol_of, store_of
from overnight.tasks.storage.location import File
from overnight.tasks.storage.transient_errors import is_passing

TEXT = (".txt", ".txt.gz")
TABLES: tuple[type[FileSource], ...] = (Parquet, Csv, Jsonl)
EXTENSIONS = (*TEXT, *Parquet.extensions, *Csv.extensions, *Jsonl.extensions)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
BYTES_A_FILE = 100_000  # an assumption, by which units are packed into blocks
RETRIES = RetryPolicy(max_tries=4, first_wait_seconds=0.5, longest_wait_seconds=2.0)
# The libraries of these stores retry requests, and an unreachable store affects all rows. A web host that does not
# answer affects only its own files.
STORES = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hf")


class Uris(WholeFiles):
    """Every file that a list below the path names."""

    kind: Literal["uris"] = "uris"
    content: Annotated[
        Literal["image", "audio", "video", "pdf", "text", "bytes"],
        Field(description="The kind of the files, and the name of their column."),
    ]
    uri_column: Annotated[str, Field(min_length=1, description="The column of the lists that holds the URIs.")] = "uri"
    keep: Annotated[list[str], Field(description="Further columns of the lists that the rows get.")] = []
    timeout_seconds: Annotated[
        float,
        Field(gt=0, description="The time in which a web server has to send a whole file; it then counts as bad."),
    ] = 120

    operational: ClassVar[tuple[str, ...]] = ("timeout_seconds",)
    extensions: ClassVar[tuple[str, ...]] = EXTENSIONS

    def files(self, partition: str) -> Iterator[File]:
        for file in super().files(partition):
            for path, uri, more in listed(file, self.uri_column, self.keep, self.anonymous):
                version: dict[str, Any] = {"uri": hashlib.sha256(uri.encode()).hexdigest()[:16]}
                if more:
                    version["more"] = more
                yield File(path, uri, BYTES_A_FILE, json.dumps(version, default=str), file.changed_at)

    def file(self, unit: dict[str, Any], size: int | None = None) -> SourceFile:
        is_anonymous = self.anonymous and protocol_of(unit["uri"]) not in WEB
        return SourceFile(unit["uri"], "", None, is_anonymous, self.on_changed, self.timeout_seconds)

    def listed_sizes(self, units: pa.Table) -> list[int]:
        return [0] * len(units)

    def field(self) -> pa.Field:
        return pa.field(self.content, pa.string() if self.content == "text" else pa.large_binary())

    def column_names_made(self) -> list[str]:
        return [self.content, *self.keep]

    def value(self, content: bytes) -> Any:
        return decoded(content, "utf-8-sig") if self.content == "text" else content

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        rows = _rows_of_lists(units)
        return pa.schema([(name, inferred_type(values_of(rows, name)) or pa.string()) for name in self.keep])

    def more_columns(
        self, units: pa.Table, schema: pa.Schema | None
    ) -> tuple[dict[str, pa.Array], dict[int, Exception]]:
        rows = _rows_of_lists(units)
        errors: dict[int, Exception] = {}
        for position, row in enumerate(rows):
            if "error" in row:
                errors[position] = RowError(row["error"])
        columns = {}
        for field in schema or ():
            columns[field.name], misfits = column_of(field.name, values_of(rows, field.name), field.type)
            errors = misfits | errors
        return columns, errors

    def contents(self, units: pa.Table) -> list[bytes | Exception]:
        """Return the contents at the URIs of `units`. An error takes the place of a content that cannot be read."""
        remaining = dict(enumerate(units.to_pylist()))
        contents, waits = self._fetched(remaining), RETRIES.waits()
        while remaining := {i: unit for i, unit in remaining.items() if _may_pass(unit["uri"], contents[i])}:
            if (seconds := next(waits, None)) is None:
                break
            time.sleep(seconds)
            contents |= self._fetched(remaining)
        if len(remaining) == len(units) > 1:
            reason = f"cannot read {units['uri'][0]} and {len(remaining) - 1} more: {contents[0]!r}"
            raise ServiceUnavailable(reason, "ingest")
        return [_blamed(uri, contents[i]) for i, uri in enumerate(units["uri"].to_pylist())]

    def _fetched(self, units: dict[int, dict[str, Any]]) -> dict[int, bytes | Exception]:
        rows_by_store: dict[str, list[int]] = defaultdict(list)
        for row, unit in units.items():
            rows_by_store[store_of(unit["uri"])].append(row)
        contents: dict[int, bytes | Exception] = {}
        for store, rows in rows_by_store.items():
            if store:
                contents |= zip(rows, self._read([units[row] for row in rows]), strict=True)
            else:
                contents |= dict.fromkeys(rows, RowError("expected a URI, found none"))
        return contents

    def _read(self, units: list[dict[str, Any]]) -> list[bytes | Exception]:
        """Return the contents at URIs of one filesystem, or for each the error of opening the filesystem."""
        error: Exception
        try:
            contents = read_whole(list(map(self.file, units)), self.max_file_bytes)
            return list(map(self._timed, contents))
        except JobError as job_error:
            raise JobError(str(job_error), "ingest") from job_error
        except OvernightError:
            raise
        except ValueError:  # from fsspec, for a protocol that it does not know
            error = RowError(f"expected a URI of a known storage, found {protocol_of(units[0]['uri'])}://")
        except Exception as other:  # from an unreachable host, or an invalid address
            error = other
        return [error] * len(units)

    def _timed(self, content: bytes | Exception) -> bytes | Exception:
        """Return the content or its error. A file that took the whole time is bad, and is not fetched again."""
        if not isinstance(content, TimeoutError) or type(content).__module__.startswith("aiohttp"):
            return content
        within = f"expected the whole file within {self.timeout_seconds:g} s"
        return RowError(
            f"{within}, found its server still sending or silent. Raise source.timeout_seconds if it is slow"
        )


def _may_pass(uri: str, content: bytes | Exception) -> bool:
    """Return True if another try may help. The libraries of `STORES` have retried already."""
    return protocol_of(uri) not in STORES and isinstance(content, Exception) and is_passing(content)


def _blamed(uri: str, content: bytes | Exception) -> bytes | Exception:
    """Return the content or its error. Each error of a web host or an address becomes one of its file."""
    is_own = isinstance(content, RowError | TooLarge | MemoryError | FileNotFoundError | PermissionError)
    if not isinstance(content, Exception) or is_own:
        return content
    if protocol_of(uri) in STORES and not is_corrupt_file(content):
        return content
    error = RowError(f"cannot be fetched: {type(content).__name__}: {content}")
    error.__cause__ = content
    return error


def _rows_of_lists(units: pa.Table) -> list[dict[str, Any]]:
    """Return the other columns of the lists, or the `error` of a bad row of a list."""
    return [json.loads(version).get("more", {}) for version in units["version"].to_pylist()]


def listed(file: File, uri_column: str, keep: list[str], anonymous: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield for each row of a list its name (`list.csv#n`), its URI, and the values of the columns `keep` by name."""
    if file.path.lower().endswith(TEXT):
        for n, line in enumerate(_lines(file, anonymous)):
            yield f"{file.path}#{n}", _absolute(line, file), {}
        return
    kind = next(kind for kind in TABLES if file.path.lower().endswith(kind.extensions))
    source = kind(path=file.uri, anonymous=anonymous)
    units = source.units([file])
    column = blocks.data_name(uri_column)
    for block in source.read(units, source.common_schema(units)):
        missing = sorted({column, *keep} - set(block.column_names))
        if missing and (block["__state"].to_numpy() == blocks.LIVE).any():
            columns = ", ".join(blocks.visible(block).drop_columns(list(blocks.IDENTITY)).column_names)
            raise InputError(f"{file.uri}: expected a column {missing[0].removeprefix('source_')}, found {columns}.")
        for row in block.to_pylist():
            if row["__state"] == blocks.QUARANTINED:
                yield row["row_id"], "", {"error": row["__error_message"]}
            elif row["__state"] == blocks.LIVE and not isinstance(row[column], str):
                reason = f"column {uri_column}: expected a URI, found {row[column]!r:.80}"
                yield row["row_id"], "", {"error": reason}
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
