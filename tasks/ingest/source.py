"""The interface of a source, and the two moments of reading: list the units once, then read each of them whole.

A source reads units into blocks of the row contract (`tasks/rows/blocks.py`). It does not use Ray, the reading order,
or the settled rows: `engine/datasource.py` and `reading/read_units.py` do.
"""

import abc
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import pyarrow as pa
from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from overnight.tasks.config.memory_bound import bounded, each_within_bound
from overnight.tasks.config.settings import AdjustableFlag, Leaf, Settings
from overnight.tasks.errors import JobError, shortened
from overnight.tasks.ingest.reading.table_blocks import lost_unit
from overnight.tasks.ingest.reading.unit_rows import Judged, file_units, unit_blocks
from overnight.tasks.ingest.versioned_file import SourceFile
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.input_files import input_files, input_folders
from overnight.tasks.storage.location import File, Location
from overnight.tasks.storage.object_store import kept_for

T = TypeVar("T")
GIB = 2**30
BOUNDED: dict[str, Any] = {"units": bounded(), "common_schema": bounded(), "read": each_within_bound}
PATHS_SHOWN = 3
SEEN = "columns seen"  # in the metadata of units
MaxFileBytes = Annotated[
    PositiveInt,
    Field(description="Files of more bytes are quarantined; if the listing has the size, they are not read."),
]
MaxRowBytes = Annotated[PositiveInt, Field(description="Rows of more stored bytes are quarantined.")]
Columns = Annotated[list[str] | None, Field(description="Columns to read; default: all.")]


class Source(Leaf):
    """The base class of all sources, with the settings that they share.

    A leaf adds `kind`, its own settings, and the methods `place`, `files`, and `tables` or `read`.
    """

    allow_empty: Annotated[AdjustableFlag, Field(description="Publish an empty partition instead of failing.")] = False
    on_changed: Annotated[
        Literal["quarantine", "fail"],
        Field(description="If a file changed or vanished after the listing: quarantine its rows, or fail the run."),
    ] = "quarantine"

    late: Annotated[
        Literal["add", "again"],
        Field(
            description="If only inputs changed since the publish: add runs the rows of new and changed files, and "
            "keeps the others; again runs all rows."
        ),
    ] = "add"

    operational: ClassVar[tuple[str, ...]] = ("allow_empty", "on_changed", "late")
    extensions: ClassVar[tuple[str, ...]] = ()
    # columns of bytes are files, too large to publish by default
    rows_are_files: ClassVar[bool] = False
    # a table, for which `overnight init` can use a column of texts
    holds_texts: ClassVar[bool] = False
    # a later row may have a column that no row before it has
    rows_show_columns: ClassVar[bool] = False
    located_by: ClassVar[str] = "path"  # the setting that messages name if there are no inputs
    dated_by: ClassVar[tuple[str, ...]] = ()  # the settings that may contain {partition}

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the methods that read the files take a bounded amount of memory: see `memory_bound.py`."""
        super().__init_subclass__(**options)
        for name, within in BOUNDED.items():
            if name in vars(cls):
                setattr(cls, name, within(vars(cls)[name]))

    @property
    def holds_images(self) -> bool:
        """Return True if the rows are image files, which are decoded by default."""
        return False

    @property
    def is_dated(self) -> bool:
        """Return True if there is one partition per day, rather than the single partition `all`."""
        return any("{partition}" in text for _, text in self.dated_texts())

    def dated_texts(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that may contain `{partition}`, as pairs of key and text: `("path", "s3://...")`."""
        for name in self.dated_by:
            value = getattr(self, name)
            if isinstance(value, list):
                value = dict(enumerate(value))
            if isinstance(value, dict):
                for key, item in value.items():
                    yield f"{name}.{key}", str(item)
            elif value is not None:
                yield name, str(value)

    def column_names_made(self) -> list[str] | None:
        """Return the names of the rows' columns besides `row_id` and `uri`; None if only the inputs show them."""
        return None

    def media_columns(self) -> list[str]:
        """Return the names of the columns whose values are the bytes of files, as the settings show them."""
        return []

    @abc.abstractmethod
    def place(self, partition: str) -> str:
        """Return the place of the inputs as a text for messages, without secrets."""

    def is_local(self, partition: str) -> bool:
        """Return True if a second thread must not read ahead, or gains nothing, as with this machine's own disks."""
        return False

    @abc.abstractmethod
    def files(self, partition: str) -> Iterator[File]:
        """Yield the files to read, in the order of reading. Raise `InputError` if the settings find no inputs."""

    def snapshot(self, partition: str) -> str:
        """Return the current version of the source's table, which a manifest records; empty if it keeps none."""
        return ""

    def at(self, snapshot: str) -> Self:
        """Return a source that reads the version `snapshot`, a result of the method `snapshot`."""
        return self

    def units(self, files: list[File]) -> pa.Table:
        """Return the units of the files (schema `manifest.UNITS`): by default each file, whose rows reading counts."""
        return file_units(files)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        """Return the columns and types with which all units are read, from the first `units` of the manifest.

        None if each file determines its own.
        """
        return None

    def full_schema(self, first: pa.Schema | None, seen: Iterable[pa.Schema]) -> pa.Schema | None:
        """Return `first`, the result of `common_schema`. A source may add the columns of the files that it opened."""
        return first

    @each_within_bound
    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        """Yield blocks of the rows of `units`, one unit after another. Quarantine rows that cannot be read.

        `schema` has the columns and types of the rows, from `full_schema`; None if each file determines its own.
        """
        for unit in units.to_pylist():
            yield from unit_blocks(unit, self.tables(unit, schema or pa.schema([])))

    def tables(self, unit: dict[str, Any], schema: pa.Schema) -> Iterator[pa.Table | Judged]:
        """Yield the rows of a unit in order, some at a time. Raise an error about the file after the last good row."""
        raise JobError(f"source.kind: expected {type(self).__name__} to have tables or read, found none.", "ingest")

    def rows(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        """Yield the blocks of `read`, with the columns that do not come from the content of the units."""
        yield from self.read(units, schema)

    def columns_in_settings(self) -> list[str]:
        """Return the names of the columns that only the settings show, besides those of `column_names_made`."""
        return []

    def lost(self, unit: dict[str, Any], error: Exception) -> Iterator[pa.Table]:
        """Yield blocks of the rows of a unit that kills each process that reads it. Quarantine them with `error`."""
        yield from lost_unit(unit, error)


def with_seen(units: pa.Table, schemas: Iterable[pa.Schema]) -> pa.Table:
    """Return `units` with the schemas of the files that the listing opened, in the metadata of the table."""
    seen = {f"{SEEN} {number}": schema.serialize().to_pybytes() for number, schema in enumerate(schemas)}
    return units.replace_schema_metadata(seen)


def seen_in(units: pa.Table) -> Iterator[pa.Schema]:
    """Yield the schemas that `with_seen` put into the metadata of `units`."""
    for name, schema in (units.schema.metadata or {}).items():
        if name.startswith(SEEN.encode()):
            yield pa.ipc.read_schema(pa.py_buffer(schema))


def kept_by_version(read: Callable[[str, int | None, bool], T]) -> Callable[[str, int | None, bool], T]:
    """Return the function of a table's URI, version and `anonymous`, with the results of versions in a small cache."""

    @lru_cache(maxsize=4)
    def cached(uri: str, version: int, anonymous: bool, _kept_for: tuple[object, ...]) -> T:
        return read(uri, version, anonymous)

    def read_or_kept(uri: str, version: int | None, anonymous: bool) -> T:
        if version is None:  # the newest one, which changes
            return read(uri, version, anonymous)
        return cached(uri, version, anonymous, kept_for(uri))

    return read_or_kept


class WaitFor(Settings):
    """What must exist before the inputs are listed. If both are set, the run waits for both."""

    file: Annotated[
        str | None,
        Field(
            min_length=1,
            pattern="^[^/]",
            examples=["_SUCCESS"],
            description="The name of a marker file below source.path.",
        ),
    ] = None
    quiet_minutes: Annotated[
        float | None, Field(gt=0, description="Waits until no input was added, changed or removed for this long.")
    ] = None
    timeout_minutes: Annotated[float, Field(gt=0, description="After this time the run fails.")] = 60.0

    @model_validator(mode="after")
    def _for_something(self) -> "WaitFor":
        if self.file is None and self.quiet_minutes is None:
            raise ValueError("expected file, quiet_minutes or both, found neither")
        return self


def _as_written(value: Any) -> Any:
    """Return the path, or the list of paths; a list of one path is that path. Raise `ValueError` for other values."""
    paths = [value]
    if isinstance(value, list):
        paths = value
    sentence = "expected a path, a pattern such as raw/*.csv, or a list of these"
    if not paths:
        raise ValueError(f"{sentence}, found an empty list")
    for path in paths:
        if not isinstance(path, str) or not path.strip():
            description = "an empty text" if isinstance(path, str) else f"{path!r:.80}"
            raise ValueError(f"{sentence}, found {description}{' in the list' if value is paths else ''}")
    return paths[0] if len(paths) == 1 else paths


OnePath = Annotated[str, Field(min_length=1)]
Paths = Annotated[
    OnePath | list[OnePath],
    BeforeValidator(_as_written),
    Field(
        description="A directory, a file, a pattern (*, ?, [ab], ** for any folders), or a list of these; {partition} "
        "and ${ENV_VAR} expand."
    ),
]
TablePath = Annotated[
    str, Field(min_length=1, description="Directory of the table; {partition} and ${ENV_VAR} expand.")
]


class FileSource(Source):
    """The common settings of sources whose rows are in files, on any storage."""

    path: Paths
    anonymous: Annotated[bool, Field(description="Read a public bucket without credentials.")] = False
    wait_for: Annotated[
        WaitFor | None, Field(description="What the run waits for before it lists the inputs; null: nothing.")
    ] = None

    operational: ClassVar[tuple[str, ...]] = ("anonymous", "wait_for")
    dated_by: ClassVar[tuple[str, ...]] = ("path",)

    @property
    def paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else self.path

    def location(self, partition: str) -> Location:
        """Return the location of the first path of the setting `path`. Glob characters in it stay."""
        return Location(self.paths[0], partition, self.anonymous)

    def folders(self, partition: str) -> list[Location]:
        """Return the folder of each path, or of a pattern the folder before its first glob character, each once."""
        return input_folders(self.paths, partition, self.anonymous)

    def place(self, partition: str) -> str:
        return shortened([str(Location(path, partition)) for path in self.paths], PATHS_SHOWN)

    def is_local(self, partition: str) -> bool:
        return all(is_local(Location(path, partition, self.anonymous).open_filesystem()[0]) for path in self.paths)

    def files(self, partition: str) -> Iterator[File]:
        return input_files(self.paths, partition, self.anonymous, self.extensions, self.allow_empty)

    def file(self, unit: dict[str, Any], size: int | None = None) -> SourceFile:
        """Return the file of a unit, which is then read only in the listed version.

        `size` is the file's size in bytes, if the unit is the whole file; otherwise None.
        """
        return SourceFile(unit["uri"], unit["version"], size, self.anonymous, self.on_changed)


class TableSource(FileSource):
    """The common methods of sources of a table whose format keeps versions, and never writes a file twice."""

    path: TablePath

    def at(self, snapshot: str) -> Self:
        return self.model_copy(update={"version": int(snapshot)})

    def file(self, unit: dict[str, Any], size: int | None = None) -> SourceFile:
        # the store has no version of a table
        return SourceFile(unit["uri"], "", size, self.anonymous, self.on_changed)
