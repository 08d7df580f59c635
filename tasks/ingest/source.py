"""What a source declares, and the two moments of reading: list the units once, then read each of them whole.

A source reads units into blocks of the row contract (`tasks/rows/blocks.py`). It knows nothing of Ray, of order or of
what was settled before: `reading/datasource.py` does.
"""

import abc
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from overnight.tasks.config.settings import Leaf, Settings
from overnight.tasks.errors import RowError
from overnight.tasks.ingest.reading.table_blocks import lost_unit
from overnight.tasks.ingest.versioned_file import SourceFile
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import File, Location

GIB = 2**30
SEEN = "columns seen"  # in the metadata of units
MaxFileBytes = Annotated[PositiveInt, Field(description="Larger files are quarantined, and not read where listed so.")]
MaxRowBytes = Annotated[PositiveInt, Field(description="Larger rows, as they are stored, are quarantined.")]


class Source(Leaf):
    """Settings that all sources share; a leaf adds `kind`, its own settings, `files`, `units` and `read`."""

    allow_empty: Annotated[bool, Field(description="Publish an empty partition instead of failing.")] = False
    on_changed: Annotated[
        Literal["quarantine", "fail"],
        Field(description="What a file costs that changed or vanished since it was listed: its rows, or the run."),
    ] = "quarantine"

    operational: ClassVar[tuple[str, ...]] = ("allow_empty", "on_changed")
    extensions: ClassVar[tuple[str, ...]] = ()
    rows_are_files: ClassVar[bool] = False  # then columns of bytes are files, too heavy to be published unasked
    holds_texts: ClassVar[bool] = False  # a table, of which a person can name a column of texts to `overnight init`
    dated_by: ClassVar[tuple[str, ...]] = ()  # the settings in which {partition} may stand

    @property
    def holds_images(self) -> bool:
        """Whether the rows are image files, which a step decodes unasked."""
        return False

    @property
    def is_dated(self) -> bool:
        """Whether there is a partition a day, rather than the single partition `all`."""
        return any("{partition}" in text for _, text in self.dated_texts())

    def dated_texts(self) -> Iterator[tuple[str, str]]:
        """What `{partition}` may stand in, each with its key: `("path", "s3://...")`."""
        for name in self.dated_by:
            value = getattr(self, name)
            if isinstance(value, dict):
                yield from ((f"{name}.{key}", str(inner)) for key, inner in value.items())
            elif value is not None:
                yield name, str(value)

    @abc.abstractmethod
    def place(self, partition: str) -> str:
        """What messages call the place of the inputs; it holds no secret."""

    def is_local(self, partition: str) -> bool:
        """Whether reading takes this machine's own disks, and nothing to wait for."""
        return False

    @abc.abstractmethod
    def files(self, partition: str) -> Iterator[File]:
        """What there is to read, in the order of reading. Raises `InputError`, or what the storage does."""

    def snapshot(self, partition: str) -> str:
        """The version that a table has now, if the source is a table that keeps its versions; else empty.

        It is looked up once a manifest, and `at` gives the source that reads it.
        """
        return ""

    def at(self, snapshot: str) -> Self:
        """The source as it is in a version that `snapshot` gave."""
        return self

    @abc.abstractmethod
    def units(self, files: list[File]) -> pa.Table:
        """The manifest's units (schema `reading_order.UNITS`, `unit` counting from 0) of the files found."""

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        """The columns and types that all units are read as, where the files themselves do not say."""
        return None

    def full_schema(self, first: pa.Schema | None, seen: Iterable[pa.Schema]) -> pa.Schema | None:
        """`common_schema` of the first units, with what the listing has seen of all files; see `with_seen`."""
        return first

    @abc.abstractmethod
    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        """Blocks of the rows of `units`, one unit after another, quarantining what cannot be read."""

    def lost(self, unit: dict[str, Any], error: Exception) -> Iterator[pa.Table]:
        """Blocks of the rows of a unit that ends whatever process reads it, each quarantined with `error`."""
        yield from lost_unit(unit, error)


def with_seen(units: pa.Table, schemas: Iterable[pa.Schema]) -> pa.Table:
    """The units of a listing that opened their files, with the schemas that it has seen in these."""
    seen = {f"{SEEN} {number}": schema.serialize().to_pybytes() for number, schema in enumerate(schemas)}
    return units.replace_schema_metadata(seen)


def seen_in(units: pa.Table) -> Iterator[pa.Schema]:
    """The schemas that `with_seen` keeps."""
    for name, schema in (units.schema.metadata or {}).items():
        if name.startswith(SEEN.encode()):
            yield pa.ipc.read_schema(pa.py_buffer(schema))


def too_large(what: str, found: int, most: int, setting: str) -> RowError:
    """The error of a file or row of more bytes than its source's bound."""
    bound = f"expected {what} of at most {setting} = {most:,} bytes, found {found:,}"
    return RowError(f"{bound}. Raise source.{setting} if a worker's memory holds several of that size")


class WaitFor(Settings):
    """What has to be there before the inputs are listed; with both, both."""

    file: Annotated[
        str | None,
        Field(min_length=1, pattern="^[^/]", examples=["_SUCCESS"], description="A marker below source.path."),
    ] = None
    quiet_minutes: Annotated[
        float | None, Field(gt=0, description="No input was added, changed or removed for so long.")
    ] = None
    timeout_minutes: Annotated[float, Field(gt=0, description="Then the run fails.")] = 60.0

    @model_validator(mode="after")
    def _for_something(self) -> "WaitFor":
        if self.file is None and self.quiet_minutes is None:
            raise ValueError("expected file, quiet_minutes or both, found neither")
        return self


class FileSource(Source):
    """What sources share that lie in one directory, on any storage."""

    path: Annotated[str, Field(min_length=1, description="Directory or file; {partition} and ${ENV_VAR} expand.")]
    anonymous: Annotated[bool, Field(description="Read a public bucket without credentials.")] = False
    wait_for: Annotated[
        WaitFor | None, Field(description="What has to be there before the inputs are listed; null: nothing.")
    ] = None

    operational: ClassVar[tuple[str, ...]] = ("anonymous", "wait_for")
    dated_by: ClassVar[tuple[str, ...]] = ("path",)

    def location(self, partition: str) -> Location:
        return Location(self.path, partition, self.anonymous)

    def place(self, partition: str) -> str:
        return str(self.location(partition))

    def is_local(self, partition: str) -> bool:
        return is_local(self.location(partition).open_filesystem()[0])

    def files(self, partition: str) -> Iterator[File]:
        return self.location(partition).files(self.extensions)

    def file(self, unit: dict[str, Any], size: int | None = None) -> SourceFile:
        """A unit's file, to be read in the version that was listed. `size`: its bytes, if the unit is all of it."""
        return SourceFile(unit["uri"], unit["version"], size, self.anonymous, self.on_changed)
