"""Lists of URIs, one row per URI's content.

Columns out: `row_id` (`list.csv#n`), `uri`, the content under the name in `content`, and the columns in `keep`. The
lists are Parquet, CSV, JSON Lines, or texts with one URI per line. A URI refers to any storage or http(s), or is a path
relative to the list. The listing reads only the lists. The content at a URI has no version, and is read as it is at the
time of fetching. A URI that cannot be fetched is quarantined alone.
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import JobError, OvernightError, RowError, ServiceUnavailable
from overnight.tasks.ingest.formats.json_types import column_of, inferred_type
from overnight.tasks.ingest.reading.table_blocks import is_corrupt_file
from overnight.tasks.ingest.sources.text import decoded
from overnight.tasks.ingest.sources.uri_lists import EXTENSIONS, listed
from overnight.tasks.ingest.sources.whole_files import WholeFiles
from overnight.tasks.ingest.versioned_file import SourceFile, read_whole
from overnight.tasks.storage.file_info import TooLarge
from overnight.tasks.storage.filesystems import WEB, protocol_of, store_of
from overnight.tasks.storage.location import File
from overnight.tasks.storage.transient_errors import is_passing

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
                about = {"uri": hashlib.sha256(uri.encode()).hexdigest()[:16], **({"more": more} if more else {})}
                yield File(path, uri, BYTES_A_FILE, json.dumps(about, default=str), file.changed_at)

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
        rows = [_more(version) for version in units["version"].to_pylist()]
        kinds = {name: inferred_type([row.get(name) for row in rows]) or pa.string() for name in self.keep}
        return pa.schema(list(kinds.items()))

    def more_columns(
        self, units: pa.Table, schema: pa.Schema | None
    ) -> tuple[dict[str, pa.Array], dict[int, Exception]]:
        rows = [_more(version) for version in units["version"].to_pylist()]
        errors: dict[int, Exception] = {i: RowError(row["error"]) for i, row in enumerate(rows) if "error" in row}
        columns = {}
        for field in schema or ():
            columns[field.name], misfits = column_of({i: row.get(field.name) for i, row in enumerate(rows)}, field.type)
            errors |= {
                i: RowError(f"column {field.name}: {reason}") for i, reason in misfits.items() if i not in errors
            }
        return columns, errors

    def contents(self, units: pa.Table) -> list[bytes | Exception]:
        """Return the contents at the URIs of `units`. An error takes the place of a content that cannot be read.

        URIs of one storage are fetched together. Raise `ServiceUnavailable` if there are several URIs, and a later
        attempt may succeed for every one of them.
        """
        left = dict(enumerate(units.to_pylist()))
        found, waits = self._fetched(left), RETRIES.waits()
        while left := {i: unit for i, unit in left.items() if _may_pass(unit["uri"], found[i])}:
            if (seconds := next(waits, None)) is None:
                break
            time.sleep(seconds)
            found |= self._fetched(left)
        if len(left) == len(units) > 1:
            raise ServiceUnavailable(f"cannot read {units['uri'][0]} and {len(left) - 1} more: {found[0]!r}", "ingest")
        return [_blamed(uri, found[i]) for i, uri in enumerate(units["uri"].to_pylist())]

    def _fetched(self, units: dict[int, dict[str, Any]]) -> dict[int, bytes | Exception]:
        groups: dict[str, list[int]] = defaultdict(list)
        for i, unit in units.items():
            groups[store_of(unit["uri"])].append(i)
        found: dict[int, bytes | Exception] = {}
        for name, places in groups.items():
            contents = self._read([units[i] for i in places]) if name else RowError("expected a URI, found none")
            found |= (
                dict.fromkeys(places, contents)
                if isinstance(contents, Exception)
                else dict(zip(places, contents, strict=True))
            )
        return found

    def _read(self, units: list[dict[str, Any]]) -> list[bytes | Exception] | Exception:
        """Return the contents at URIs of one filesystem, or the error of opening the filesystem."""
        try:
            return [
                self._timed(content) for content in read_whole([self.file(unit) for unit in units], self.max_file_bytes)
            ]
        except JobError as error:
            raise JobError(str(error), "ingest") from error
        except OvernightError:
            raise
        except ValueError:  # from fsspec, for a protocol that it does not know
            return RowError(f"expected a URI of a known storage, found {protocol_of(units[0]['uri'])}://")
        except Exception as error:  # from an unreachable host, or an invalid address
            return error

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
    if not isinstance(content, Exception) or is_own or (protocol_of(uri) in STORES and not is_corrupt_file(content)):
        return content
    error = RowError(f"cannot be fetched: {type(content).__name__}: {content}")
    error.__cause__ = content
    return error


def _more(version: str) -> dict[str, Any]:
    more: dict[str, Any] = json.loads(version).get("more", {})
    return more
