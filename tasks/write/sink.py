"""What a sink declares, and the moments of a publish: prepare, then commit, and tidy up.

A sink gives a partition's staged rows to readers. It knows nothing of checks and receipts: `publish.py` does, which
calls its verbs for a run that holds the partition's lease. A process may die between any two of them, and in the middle
of one.
"""

import abc
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, PositiveInt

from overnight.tasks.config.settings import Leaf
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.stream.unwritable_rows import (
    refuse_broken_texts,
    refuse_overflowing_times,
    refuse_partition_column,
    refuse_types_beyond_parquet,
)

ParquetCompression = Literal["zstd", "snappy", "gzip", "lz4", "none"]


class Sink(Leaf):
    """Settings that all sinks share; a leaf adds `kind`, its own settings and the verbs.

    `run.sink` is where the table lies, rather than `place`: a sample goes elsewhere.
    """

    partition_column: Annotated[
        str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="The column that holds the partition's date.")
    ] = "date"
    rows_per_part: Annotated[
        PositiveInt | None, Field(description="The rows of a staged part; default: about a minute's work.")
    ] = None
    keep_columns: Annotated[
        list[str],
        Field(
            description="Heavy columns to publish although they are inputs, for example [image].",
            json_schema_extra={"formerly": "keep"},
        ),
    ] = []

    operational: ClassVar[tuple[str, ...]] = ("rows_per_part",)

    @property
    def place(self) -> str | None:
        """The directory of the table, as the job file writes it; None where it lies in no directory."""
        return None

    @property
    def staged_compression(self) -> str:
        """How staged parts are compressed."""
        return "zstd"

    def of_samples(self) -> "Sink":
        """The sink that publishes samples, below the state."""
        return self

    def shown(self, run: Run) -> str:
        """Where readers find the rows, for people; without anything secret."""
        return str(run.target)

    def refuse_columns(self, run: Run, schema: pa.Schema) -> None:
        """Raises `ContractError` for a column that the sink cannot take, whatever its rows hold; before the first row.

        `schema`: the rows' columns, in which arrays may still be tensors.
        """
        refuse_partition_column(schema, run)
        refuse_types_beyond_parquet(schema)

    def take(self, table: pa.Table) -> None:
        """Raises where a row cannot be published; it is then called again to find the row, which is quarantined."""
        refuse_broken_texts(table)
        refuse_overflowing_times(table)

    def published(self, run: Run, prepared: Prepared) -> list[str]:
        """The files that the receipt will list, as paths below the sink."""
        return as_paths(run, [file.name for file in prepared.files])

    @abc.abstractmethod
    def foreign(self, run: Run, known: set[str]) -> list[str]:
        """What lies in the partition's place and is none of the `known` files of its receipts; paths below the sink.

        Raises `CheckFailed` where the place is another kind of table.
        """

    @abc.abstractmethod
    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        """Merges the staged rows into files that readers do not see yet, as Ray tasks.

        `merged` has the ranges of the `records` (`settled.merge`). Raises `ContractError` for columns that the table
        cannot hold.
        """

    @abc.abstractmethod
    def commit(self, run: Run, prepared: Prepared, old: list[str]) -> None:
        """The one moment: what is prepared becomes the partition, in the place of the `old` files.

        `old`: paths below the sink. Raises `LeaseLost` where it finds, before that moment, that a later run has taken
        over, and `CheckFailed` where the table does not take the files any more.
        """

    @abc.abstractmethod
    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        """Whether `run`, which was cut off, had its moment. If not, it cannot have it any more.

        `files` and `old`, paths below the sink, are what `commit` was called with.
        """

    @abc.abstractmethod
    def finish(self, run: Run, files: list[str], old: list[str]) -> None:
        """After the commit: removes what neither readers nor earlier versions need. May be called twice."""

    def version(self, run: Run) -> dict[str, Any]:
        """What the receipt gains by the commit: the version of the table that it made, where there is such a thing."""
        return {}

    @abc.abstractmethod
    def discard(self, run: Run) -> None:
        """Removes what `run` prepared, if it did not commit it. May be called twice."""


class DirectorySink(Sink):
    """Settings of sinks whose table lies in a directory of its own."""

    path: Annotated[str, Field(min_length=1, description="Directory of the table; ${ENV_VAR} expands.")]
    target_file_size: Annotated[PositiveInt, Field(description="The size of a published file, in bytes.")] = 128 * 2**20

    operational: ClassVar[tuple[str, ...]] = ("path", "target_file_size")

    @property
    def place(self) -> str | None:
        return self.path


def file_prefix(run: Run) -> str:
    """How the names begin of all files that an attempt publishes; no other attempt's do."""
    return f"part-{run.generation}-{run.attempt.rsplit('-', 1)[-1]}-"


def as_paths(run: Run, names: Iterable[str]) -> list[str]:
    """Names of files in the partition's place, as paths below the sink."""
    return [f"{run.partition_directory}/{name}".lstrip("/") for name in names]


def as_names(paths: Iterable[str]) -> set[str]:
    """Names of files, from paths below the sink."""
    return {path.rsplit("/", 1)[-1] for path in paths}
