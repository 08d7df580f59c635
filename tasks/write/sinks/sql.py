"""The SQL sink: rows of a table in a database, one for each `row_id` of the partition, written by upsert.

A publish is one transaction: your own columns in the table stay unchanged. Before it, the rows are loaded into a table
of their own, `_overnight_<hash>`. The key is the partition column and `row_id`, which need a unique index in a table of
your own. The table `overnight_publishes` has the last attempt of each partition. A publish locks the partition's row
there, and checks the lease under that lock. So an attempt that was taken over cannot commit.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pyarrow import types
from pydantic import Field

from overnight.tasks.config.masking import masked
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import PART, Record
from overnight.tasks.storage.database import DatabaseUrl
from overnight.tasks.storage.error_translation import translate_publish_errors
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import Prepared, merge, merged_rows, published_schema
from overnight.tasks.write.sink import ROWS_AT_ONCE, Sink, file_prefix
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream.unwritable_rows import (
    refuse_far_times,
    refuse_fine_times,
    refuse_infinite,
    refuse_names,
    refuse_nan,
    refuse_null_characters,
    refuse_same_but_for_case,
)
from overnight.tasks.write.tables import sql
from overnight.tasks.write.tables.optimistic_commit import partition_columns, rows_lost
from overnight.tasks.write.tables.sql_schema import Target
from overnight.tasks.write.tables.sql_types import is_json, sql_columns

FILE_BYTES = 128 * 2**20
UNFIT = r"""["'`:\x00-\x1f]"""  # in a name: quotes, and the characters that SQLAlchemy parses as a parameter
NAME_BYTES = 63  # PostgreSQL's


class SqlSink(Sink):
    """A table of PostgreSQL, or of another database that supports ON CONFLICT."""

    kind: Literal["sql"] = "sql"
    url: DatabaseUrl
    table: Annotated[
        str,
        Field(
            pattern=r"^([A-Za-z_]\w*\.)?[A-Za-z_]\w*$",
            description="The table's name, with its schema and a dot before it if needed.",
        ),
    ]

    operational: ClassVar[tuple[str, ...]] = ("url",)
    keeps_rows: ClassVar[bool] = True

    def refuse_columns(self, run: Run, schema: pa.Schema) -> None:
        super().refuse_columns(run, schema)
        refuse_names(schema.names, UNFIT, "a database", None if self.url.startswith("sqlite") else NAME_BYTES)
        refuse_same_but_for_case([*partition_columns(run), *schema.names], "SQL")
        sql_columns(schema)

    def take(self, table: pa.Table) -> None:
        super().take(table)
        refuse_far_times(table)
        refuse_fine_times(table, "a database")
        refuse_fine_times(table, "a database", types.is_time)
        if self.url.startswith("sqlite"):
            refuse_nan(table, "SQLite")
            return
        refuse_null_characters(table)
        as_json = [field.name for field in table.schema if is_json(field.type)]
        refuse_infinite(table.select(as_json), "the JSON of a database")

    def of_samples(self) -> Sink:
        return ParquetSink(path="-", partition_column=self.partition_column)

    def shown(self, run: Run) -> str:
        return masked(f"{self.url} {self.table}")

    def published(self, run: Run, prepared: Prepared) -> list[str]:
        """Return an empty list: rows of a database are not in files."""
        return []

    def foreign(self, run: Run, known: set[str]) -> list[str]:
        with translate_publish_errors(self.shown(run)):
            sql.refuse_foreign_rows(self._table(run))
        return []

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        ready = merge(
            run.parts, records, merged, published_schema(records), merged_rows(run), file_prefix(run), PART, "zstd",
            FILE_BYTES,
        )  # fmt: skip
        with translate_publish_errors(self.shown(run)):
            sql.load(self._table(run), ready.files, ready.schema)
        return ready

    def commit(self, run: Run, prepared: Prepared, old: list[str]) -> None:
        with translate_publish_errors(self.shown(run)):
            sql.replace_partition(self._table(run), prepared.schema, prepared.rows, keep=prepared.kept is not None)

    def lost(self, run: Run, files: list[str], rows: int) -> str:
        with translate_publish_errors(self.shown(run)):
            return rows_lost(sql.partition_rows(self._table(run)), rows)

    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        with translate_publish_errors(self.shown(run)):
            return sql.has_committed(self._table(run))

    def finish(self, run: Run, files: list[str], old: list[str]) -> None:
        with translate_publish_errors(self.shown(run)):
            sql.drop_loaded(self._table(run))

    def read(self, place: Location, receipt: Mapping[str, Any], columns: list[str] | None) -> Iterator[pa.Table]:
        """Yield the rows that the database has now, sorted by `row_id`. The types follow from Python's values."""
        for table in sql.rows_of(self.url, self.table, self.partition_column, receipt["partition"], ROWS_AT_ONCE):
            yield table.select(columns) if columns else table

    def discard(self, run: Run) -> None:
        merged_rows(run).remove()
        self.finish(run, [], [])

    def _table(self, run: Run) -> Target:
        return Target(self.url, self.table, run)
