"""The Lance sink: a Lance table on local disk or object storage, with the partition as a column.

A publish is one commit that replaces the partition's rows, and the receipt names its version as `table_version`. The
partition `all` is the whole table. Other jobs may publish other partitions of the same table, if they agree on the
types of the columns. New columns are added before, by a version of their own. Replaced fragments stay, until
the table's owner calls `cleanup_old_versions`. With `index`, a vector index is updated after each publish.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from overnight.tasks.config.partition_names import partition_condition, partition_values
from overnight.tasks.errors import ContractError, NotKept
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import PART, Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import MergedFile, Prepared, merge, merged_rows, published_schema
from overnight.tasks.write.sink import ROWS_AT_ONCE, DirectorySink, file_prefix
from overnight.tasks.write.stream.unwritable_rows import refuse_names
from overnight.tasks.write.tables import lance
from overnight.tasks.write.tables.optimistic_commit import (
    files_without_table,
    partition_scalars,
    rows_lost,
)

INDEXED_ROWS = 5_000


class LanceSink(DirectorySink):
    """A Lance table, with one commit per publish, time travel and a vector index."""

    kind: Literal["lance"] = "lance"
    index: Annotated[str | None, Field(description="The column of embeddings that gets a vector index.")] = None
    metric: Annotated[Literal["cosine", "l2", "dot"], Field(description="The distance that the index uses.")] = "cosine"

    operational: ClassVar[tuple[str, ...]] = ("index", "metric")
    keeps_rows: ClassVar[bool] = True
    keeps_publications: ClassVar[bool] = True

    def refuse_columns(self, run: Run, schema: pa.Schema) -> None:
        super().refuse_columns(run, schema)
        refuse_names(schema.names, r"[.`]", "a Lance table")
        lance.refuse_types(schema)

    def published(self, run: Run, prepared: Prepared) -> list[str]:
        return lance.data_files(list(prepared.uncommitted))

    def foreign(self, run: Run, known: set[str]) -> list[str]:
        table = lance.open_table(run.sink)
        if table is None:
            return files_without_table(run)
        lance.refuse_other_layout(table, run)
        return [] if known else lance.partition_files(table, run)

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        """Write the staged rows as fragments into the table's directory. Readers ignore fragments without a version."""
        schema = lance.fitted_schema(lance.open_table(run.sink), run, published_schema(records))
        if self.index:
            refuse_no_vectors(schema, self.index)
        ready = merge(
            run.parts, records, merged, schema, merged_rows(run), file_prefix(run), PART, "zstd",
            self.target_file_size, constants=partition_scalars(run),
        )  # fmt: skip
        lance.complete(run, schema)
        # The rows are in the table's directory now, in fragments that no version contains yet.
        return replace(ready, uncommitted=lance.write_fragments(run, ready.files))

    def recall(self, run: Run, receipt: Mapping[str, Any]) -> Prepared:
        """Write the rows of the version that the receipt names again, as fragments."""
        target = merged_rows(run) / f"{file_prefix(run)}00000.parquet{PART}"
        try:
            tables = list(self.read(run.sink, receipt, None))
        except (FileNotFoundError, ValueError, OSError) as error:
            raise NotKept(
                f"{run.job}/{run.partition}: expected version {receipt.get('table_version')} of the Lance table, found "
                f"it gone: {error}. Nothing was changed. `cleanup_old_versions` removes versions."
            ) from error
        if not tables or not receipt["files"]:
            return Prepared([], pa.schema([]))
        rows = pa.concat_tables(tables)
        schema = rows.schema.remove_metadata()
        for name, value in partition_scalars(run).items():
            rows = rows.append_column(name, pa.repeat(value, len(rows)))
        with target.writing() as file:
            pq.write_table(rows, file)
        lance.complete(run, schema)
        files = [MergedFile(target.name, target, len(rows), 0, {})]
        return Prepared(files, schema, lance.write_fragments(run, files))

    def commit(self, run: Run, prepared: Prepared, old: list[str]) -> None:
        lance.commit(run, list(prepared.uncommitted), keep=prepared.kept is not None)

    def lost(self, run: Run, files: list[str], rows: int) -> str:
        table = lance.open_table(run.sink)
        return rows_lost(sum(lance.rows_of_partition(table, run).values()) if table else 0, rows)

    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        return lance.fence(run)

    def finish(self, run: Run, files: list[str], old: list[str]) -> None:
        """Update the vector index, if any. Keep replaced files, because earlier versions of the table need them."""
        if self.index:
            bring_index_up_to_date(run.sink, self.index, self.metric)

    def version(self, run: Run) -> dict[str, Any]:
        table = lance.open_table(run.sink)
        version = lance.committed(table, run) if table else None
        return {"table_version": version} if version else {}

    def read(self, place: Location, receipt: Mapping[str, Any], columns: list[str] | None) -> Iterator[pa.Table]:
        table, partition = lance.open_table(place, receipt["table_version"]), receipt["partition"]
        if table is None:
            raise FileNotFoundError(str(place))
        own = None if partition == "all" else partition_condition(self.partition_column, partition)
        without = partition_values(self.partition_column, partition)
        names = columns or [name for name in table.schema.names if name not in without]
        for batch in table.scanner(columns=names, filter=own, batch_size=ROWS_AT_ONCE).to_batches():
            yield pa.Table.from_batches([batch])

    def discard(self, run: Run) -> None:
        table = lance.open_table(run.sink)
        if not (table and lance.committed(table, run)):
            for path in lance.written_files(merged_rows(run)):
                (run.sink / path).remove()
        merged_rows(run).remove()


def refuse_no_vectors(schema: pa.Schema, column: str) -> None:
    """Raise `ContractError` unless the column has fixed-size lists of floats, which a vector index needs."""
    if not len(schema):
        return  # no rows
    kind = schema.field(column).type if column in schema.names else None
    if kind is None or not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
        raise ContractError(
            f"sink.index: expected a column {column!r} of embeddings, all of one length, found {kind or 'none'} among "
            f"{', '.join(schema.names)}.",
            "write",
        )


def bring_index_up_to_date(sink: Location, column: str, metric: str) -> None:
    """Add the new rows of the table to the vector index of the column, or create it with the distance `metric`.

    A table of fewer than `INDEXED_ROWS` vectors gets no index.
    """
    table = lance.open_table(sink)
    rows = table.count_rows(f"{column} IS NOT NULL") if table and column in table.schema.names else 0
    if table is None or rows < INDEXED_ROWS:
        return
    if any(column in index.field_names for index in table.describe_indices()):
        table.optimize.optimize_indices()
        return
    table.create_index(column, "IVF_FLAT", metric=metric, num_partitions=round(math.sqrt(rows)))
