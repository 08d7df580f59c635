"""The Delta sink: a Delta Lake table on local disk or object storage, partitioned by `partition_column`.

A publish is one commit that replaces exactly the run's partition. The partition `all` is an unpartitioned table,
replaced whole, columns included. Other jobs may publish other partitions of the same table, if they agree on the types
of the columns. Replaced files stay for time travel, until the table's owner removes them:
`DeltaTable(path).vacuum(...)`; compaction (`optimize`) is fine as well.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.write.merge.merge_parts import Prepared, merge, published_schema
from overnight.tasks.write.sink import DirectorySink, ParquetCompression, file_prefix
from overnight.tasks.write.sinks.earlier_files import counted, publish_again
from overnight.tasks.write.stream.unwritable_rows import refuse_fine_times, refuse_same_but_for_case
from overnight.tasks.write.tables import delta
from overnight.tasks.write.tables.delta_types import delta_schema, fitted
from overnight.tasks.write.tables.optimistic_commit import (
    files_missing,
    files_without_table,
    partition_columns,
    refuse_other_partitioning,
    remove_files,
    rows_lost,
)


class DeltaSink(DirectorySink):
    """A Delta Lake table, with one commit per publish and time travel."""

    kind: Literal["delta"] = "delta"
    compression: Annotated[ParquetCompression, Field(description="The compression of the Parquet files.")] = "zstd"

    operational: ClassVar[tuple[str, ...]] = ("compression",)
    keeps_rows: ClassVar[bool] = True
    keeps_publications: ClassVar[bool] = True

    @property
    def staged_compression(self) -> str:
        return self.compression

    def refuse_columns(self, run: Run, schema: pa.Schema) -> None:
        super().refuse_columns(run, schema)
        refuse_same_but_for_case([*partition_columns(run), *schema.names], "a Delta table")
        delta_schema(schema)

    def take(self, table: pa.Table) -> None:
        super().take(table)
        refuse_fine_times(table, "a Delta table")

    def foreign(self, run: Run, known: set[str]) -> list[str]:
        table = delta.open_table(run.sink)
        if table is None:
            return files_without_table(run)
        layout = table.metadata().partition_columns
        refuse_other_partitioning(run, layout, partition_columns(run), "a Delta table", "sink.path")
        unknown = set(delta.partition_files(table, run)) - known
        return sorted(unknown - delta.compacted_files(run.sink, table.version(), unknown))

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        """Merge the staged rows into files in the table's directory. Readers ignore files without a commit."""
        schema = delta_schema(published_schema(records))
        table = delta.open_table(run.sink)
        if table and run.partition_directory:
            schema = fitted(schema, delta.columns(table))
        return merge(
            run.parts, records, merged, schema, run.target, file_prefix(run), "", self.compression,
            self.target_file_size,
        )  # fmt: skip

    def recall(self, run: Run, receipt: Mapping[str, Any]) -> Prepared:
        """Link or copy the files, which stay in the table's directory until its owner calls `vacuum`."""
        files, columns = counted(publish_again(run, receipt, self.place_of, run.target, ""))
        schema, table = delta_schema(columns), delta.open_table(run.sink)
        if table and run.partition_directory:
            schema = fitted(schema, delta.columns(table))
        return Prepared(files, schema)

    def commit(self, run: Run, prepared: Prepared, old: list[str]) -> None:
        delta.commit(run, prepared.files, prepared.schema, None if prepared.kept is None else old)

    def cannot_rewrite(self, run: Run, schema: pa.Schema, files: Sequence[str]) -> str:
        table = delta.open_table(run.sink)
        return files_missing(files, delta.partition_files(table, run) if table else ())

    def lost(self, run: Run, files: list[str], rows: int) -> str:
        table = delta.open_table(run.sink)
        return rows_lost(sum(delta.partition_files(table, run).values()) if table else 0, rows)

    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        return delta.fence(run)

    def finish(self, run: Run, files: list[str], old: list[str]) -> None:
        """Keep replaced files, because earlier versions of the table need them."""

    def discard(self, run: Run) -> None:
        table = delta.open_table(run.sink)
        if not (table and delta.has_committed(table, run)):
            remove_files(run)
