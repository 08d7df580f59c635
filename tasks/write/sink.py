"""The interface of a sink: methods that prepare the files of a publish, commit them, and clean up.

A sink makes a partition's staged rows available to readers. It does not use checks and receipts. `publish.py` does, and
calls the sink's methods for a run that holds the partition's lease. The process may die between two calls, and in the
middle of a call.
"""

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, PositiveFloat, PositiveInt

from overnight.tasks.config.settings import Leaf
from overnight.tasks.engine.passing_on import PartSize
from overnight.tasks.errors import ContractError, NotKept
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.stream.unwritable_rows import (
    refuse_broken_texts,
    refuse_overflowing_times,
    refuse_partition_column,
    refuse_types_beyond_parquet,
)

ROWS_AT_ONCE = 1024  # of a table that `read` yields

ParquetCompression = Literal["zstd", "snappy", "gzip", "lz4", "none"]

# Fingerprints and receipts keep the old names, so that a renamed setting makes no partition stale.
RECORDED_AS = {"keep_columns": "keep"}


class UnreadableKind(ContractError):
    """The kind of sink publishes files other than Parquet, and has no `read` of its own."""


class Sink(Leaf):
    """A place for published rows, with the settings that all sinks share.

    A leaf adds `kind`, its own settings and the abstract methods. Its methods must use `run.sink` as the place of the
    table, not `place`, because samples are published elsewhere.
    """

    partition_column: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(,[A-Za-z_][A-Za-z0-9_]*)*$",
            description="The column that holds the partition's date; with `partitions`, its columns do.",
        ),
    ] = "date"
    rows_per_part: Annotated[
        PositiveInt | None, Field(description="The rows of a staged part; default: `seconds_per_part` decides.")
    ] = None
    seconds_per_part: Annotated[
        PositiveFloat,
        Field(description="A finished row is staged after about this time, in seconds; not used with `rows_per_part`."),
    ] = 60.0
    keep_columns: Annotated[
        list[str],
        Field(
            description="Heavy columns to publish although they are inputs, for example [image].",
            json_schema_extra={"formerly": "keep"},
        ),
    ] = []

    operational: ClassVar[tuple[str, ...]] = ("rows_per_part", "seconds_per_part")
    keeps_rows: ClassVar[bool] = False  # if `commit` can add files to the published ones
    keeps_publications: ClassVar[bool] = False  # if `recall` and `read` find the rows of an earlier receipt

    @property
    def place(self) -> str | None:
        """Return the directory of the table, as the job file writes it; None if it has no directory."""
        return None

    @property
    def part_size(self) -> PartSize:
        """Return the settings for the number of rows in a staged part."""
        return PartSize(self.rows_per_part, self.seconds_per_part)

    @property
    def staged_compression(self) -> str:
        """Return the Parquet compression of staged parts, such as `zstd`."""
        return "zstd"

    def of_samples(self) -> "Sink":
        """Return the sink to which a run with `--limit-rows` publishes its sample, below the job's state."""
        return self

    def shown(self, run: Run) -> str:
        """Return the place in which readers find the rows, for messages, without secrets."""
        return str(run.target)

    def refuse_columns(self, run: Run, schema: pa.Schema) -> None:
        """Raise `ContractError` for a column that the sink cannot publish, whatever its values.

        It may be called before the first row is read, when arrays in `schema` may still be tensors.
        """
        refuse_partition_column(schema, run)
        refuse_types_beyond_parquet(schema)

    def take(self, table: pa.Table) -> None:
        """Raise an error if a row of the table cannot be published.

        The caller halves a refused table until it has found the row, and quarantines the row with the error.
        """
        refuse_broken_texts(table)
        refuse_overflowing_times(table)

    def published(self, run: Run, prepared: Prepared) -> list[str]:
        """Return the paths below the sink of the prepared files, for the receipt."""
        return as_paths(run, [file.name for file in prepared.files])

    def lost(self, run: Run, files: list[str], rows: int) -> str:
        """Return a phrase that names what is missing of a published result, or an empty text.

        `files` and `rows` are the files and the number of rows that were published.
        """
        return ""

    def cannot_rewrite(self, run: Run, schema: pa.Schema, files: Sequence[str]) -> str:
        """Return why rows of the published `files` cannot leave, if others stay; an empty text if they can.

        If they can, `read` of one file returns its rows in types that `schema` can hold, the staged columns.
        """
        return f"sink.kind: {self.kind} cannot remove some of the published rows"

    @abc.abstractmethod
    def foreign(self, run: Run, known: set[str]) -> list[str]:
        """Return the files in the partition's place that are not in `known`, its receipts' files, below the sink.

        Raise `CheckFailed` for a table with another layout, or with rows that this job did not write.
        """

    @abc.abstractmethod
    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        """Merge the staged rows into files that readers do not see yet, and return these files.

        `merged` has the ranges of `records`. Raise `ContractError` for columns that the table cannot store.
        """

    @abc.abstractmethod
    def commit(self, run: Run, prepared: Prepared, old: list[str]) -> None:
        """Replace the `old` files by the prepared files in one step. The rows of `prepared.kept` stay.

        Raise `LeaseLost` if a later run took over before, `CheckFailed` if the table no longer accepts the files.
        """

    @abc.abstractmethod
    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        """Return True if the interrupted `run` committed its publish. If it did not, prevent it from committing later.

        `files` are the files that it prepared, and `old` the files to replace, as paths below the sink.
        """

    @abc.abstractmethod
    def finish(self, run: Run, files: list[str], old: list[str]) -> None:
        """Remove the files that are no longer needed after the commit. It may be called twice.

        `files` (published) and `old` (replaced) are below the sink. Files that earlier versions of the table need stay.
        """

    def keep(self, run: Run, files: list[str], earlier: Iterable[Mapping[str, Any]]) -> None:
        """Keep replaced files after a commit of `files`, as far as the sink keeps any. It may be called twice.

        `earlier` are the receipts of earlier publishes, the newest first. `finish` removes the other replaced files.
        """

    def excess(self, run: Run, earlier: Iterable[Mapping[str, Any]]) -> list[Location]:
        """Return the kept files of the run's partition that are more than the sink should keep."""
        return []

    def recall(self, run: Run, receipt: Mapping[str, Any]) -> Prepared:
        """Prepare the rows of an earlier receipt to be published again, in files that readers do not see yet.

        Raise `NotKept` if the rows are no longer there.
        """
        raise NotKept(
            f"{run.job}/{run.partition}: expected a sink that keeps earlier publications, found kind: {self.kind}, "
            "which has the rows of the newest publish only. Nothing was changed. Run the partition again, with the "
            "settings and inputs of then."
        )

    def version(self, run: Run) -> dict[str, Any]:
        """Return what the commit adds to the receipt: `table_version`; empty if the table has no versions."""
        return {}

    def place_of(self, sink: Location, file: str) -> Location:
        """Return the place of a file of a receipt, given its path below the `sink`."""
        return sink / file

    def read(self, place: Location, receipt: Mapping[str, Any], columns: list[str] | None) -> Iterator[pa.Table]:
        """Yield the rows that a receipt describes, without the column of the partition, except in files of Iceberg.

        Raise `FileNotFoundError` if a later publish has replaced the files. This method reads only Parquet files.
        """
        for name in receipt["files"]:
            if not name.endswith(".parquet"):
                raise UnreadableKind(
                    f"expected published files of Parquet in a sink of kind {self.kind}, found {name}. Give the sink a "
                    "method read, so that show, search and the page of a run find the rows."
                )
            with self.place_of(place, name).open() as file:
                parquet = pq.ParquetFile(file)
                yield pa.Table.from_batches([], parquet.schema_arrow).select(columns or parquet.schema_arrow.names)
                for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=columns):
                    yield pa.Table.from_batches([batch])

    @abc.abstractmethod
    def discard(self, run: Run) -> None:
        """Remove the files that `run` prepared, if it did not commit them. It may be called twice."""


class DirectorySink(Sink):
    """The settings of sinks whose table has a directory of its own."""

    path: Annotated[str, Field(min_length=1, description="Directory of the table; ${ENV_VAR} expands.")]
    target_file_size: Annotated[PositiveInt, Field(description="The size of a published file, in bytes.")] = 128 * 2**20

    operational: ClassVar[tuple[str, ...]] = ("path", "target_file_size")

    @property
    def place(self) -> str | None:
        return self.path


def file_prefix(run: Run) -> str:
    """Return the beginning of the names of all files that an attempt publishes; it is unique to the attempt."""
    return f"part-{run.generation}-{run.attempt.rsplit('-', 1)[-1]}-"


def as_paths(run: Run, names: Iterable[str]) -> list[str]:
    """Return the paths below the sink of files in the partition's directory, given their names."""
    return [f"{run.partition_directory}/{name}".lstrip("/") for name in names]


def as_names(paths: Iterable[str]) -> set[str]:
    """Return the last component of each path: the name of the file."""
    return {path.rsplit("/", 1)[-1] for path in paths}
