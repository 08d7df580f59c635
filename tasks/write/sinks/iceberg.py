"""The Iceberg sink: an Iceberg table in a SQL catalogue, partitioned by `partition_column`.

A publish is one snapshot that replaces exactly the run's partition, and the receipt names it as `table_version`. The
partition `all` is an unpartitioned table, replaced whole. Other jobs may publish other partitions of the same table, if
they agree on the types of the columns. Replaced files stay for time travel, until the table's owner expires snapshots.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.rows.arrow_types import columns_except
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.database import DatabaseUrl
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import Prepared, merge, published_schema
from overnight.tasks.write.sink import DirectorySink, ParquetCompression, Sink, file_prefix
from overnight.tasks.write.sinks.earlier_files import counted, publish_again
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream.unwritable_rows import refuse_far_times, refuse_fine_times
from overnight.tasks.write.tables import iceberg
from overnight.tasks.write.tables.delta_types import fitted
from overnight.tasks.write.tables.optimistic_commit import (
    files_missing,
    files_without_table,
    partition_columns,
    partition_scalars,
    remove_files,
    rows_lost,
)


class IcebergSink(DirectorySink):
    """An Iceberg table, with one snapshot per publish and time travel."""

    kind: Literal["iceberg"] = "iceberg"
    catalog: DatabaseUrl
    table: Annotated[
        str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$", description="The table's name, as namespace.table.")
    ]
    catalog_name: Annotated[str, Field(description="The catalogue's name in its database.")] = "default"
    compression: Annotated[ParquetCompression, Field(description="The compression of the Parquet files.")] = "zstd"

    operational: ClassVar[tuple[str, ...]] = ("catalog", "catalog_name", "compression")
    keeps_rows: ClassVar[bool] = True
    keeps_publications: ClassVar[bool] = True

    @property
    def staged_compression(self) -> str:
        return self.compression

    def of_samples(self) -> Sink:
        return ParquetSink(path="-", partition_column=self.partition_column, compression=self.compression)

    def refuse_columns(self, run: Run, schema: pa.Schema) -> None:
        super().refuse_columns(run, schema)
        iceberg.iceberg_schema(schema)

    def take(self, table: pa.Table) -> None:
        super().take(table)
        refuse_fine_times(table, "an Iceberg table")
        refuse_far_times(table)  # pyiceberg converts them to Python's own, for its statistics

    def foreign(self, run: Run, known: set[str]) -> list[str]:
        table = self._entry().open(run)
        if table is None:
            return files_without_table(run)
        iceberg.refuse_other_layout(table, run)
        return sorted(iceberg.partition_files(table, run).keys() - known)

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        """Merge the run's parts into data files in the table's directory. Readers ignore them until the commit."""
        schema = iceberg.iceberg_schema(published_schema(records))
        table = self._entry().open(run)
        if table:
            schema = fitted(schema, iceberg.columns(table, run))
        return merge(
            run.parts, records, merged, schema, run.target, file_prefix(run), "", self.compression,
            self.target_file_size, constants=partition_scalars(run),
        )  # fmt: skip

    def recall(self, run: Run, receipt: Mapping[str, Any]) -> Prepared:
        """Link or copy the files, which stay in the table's directory until its owner removes them."""
        files, columns = counted(publish_again(run, receipt, self.place_of, run.target, ""))
        schema = iceberg.iceberg_schema(columns_except(columns, partition_columns(run)))
        table = self._entry().open(run)
        return Prepared(files, fitted(schema, iceberg.columns(table, run)) if table else schema)

    def commit(self, run: Run, prepared: Prepared, old: list[str]) -> None:
        old_files = None if prepared.kept is None else old
        iceberg.commit(self._entry(), run, prepared.files, prepared.schema, old_files)

    def cannot_rewrite(self, run: Run, schema: pa.Schema, files: Sequence[str]) -> str:
        table = self._entry().open(run)
        return files_missing(files, iceberg.partition_files(table, run) if table else ())

    def lost(self, run: Run, files: list[str], rows: int) -> str:
        table = self._entry().open(run)
        return rows_lost(sum(iceberg.partition_files(table, run).values()) if table else 0, rows)

    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        return iceberg.fence(self._entry(), run)

    def finish(self, run: Run, files: list[str], old: list[str]) -> None:
        """Keep replaced files, because earlier snapshots of the table need them."""

    def version(self, run: Run) -> dict[str, Any]:
        table = self._entry().open(run)
        snapshot = iceberg.committed(table, run) if table else None
        return {"table_version": snapshot} if snapshot else {}

    def discard(self, run: Run) -> None:
        table = self._entry().open(run)
        if not (table and iceberg.committed(table, run)):
            remove_files(run)

    def _entry(self) -> iceberg.CatalogEntry:
        location = Location(self.path)
        return iceberg.CatalogEntry(self.catalog, self.catalog_name, self.table, location)
