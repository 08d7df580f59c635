"""The Iceberg table of a sink: read the content of a partition, and replace exactly this content by one snapshot.

Every snapshot is committed on exactly the snapshot that was read. The retries of pyiceberg are switched off, because
they do not check the lease. The snapshot's summary has its owner: job, partition, generation, attempt. `fence` commits
an empty snapshot in the name of an attempt that did not commit, so that a paused commit of that attempt fails.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.partition_names import partition_condition
from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows.arrow_types import columns_except, with_inner_fields, with_types
from overnight.tasks.state.run import Run
from overnight.tasks.storage.database import expanded
from overnight.tasks.storage.error_translation import translate_publish_errors
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import iceberg_properties
from overnight.tasks.write.merge.merge_parts import MergedFile
from overnight.tasks.write.sink import as_paths
from overnight.tasks.write.tables import optimistic_commit
from overnight.tasks.write.tables.delta_types import delta_schema, fitted
from overnight.tasks.write.tables.optimistic_commit import partition_columns, whole_schema

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

OWN_TABLES = ("iceberg_tables", "iceberg_namespace_properties")  # of a catalogue
COMMITTED, FENCED_OFF = "overnight.attempt", "overnight.fenced-off"


@dataclass(frozen=True)
class CatalogEntry:
    """The table `name` (`namespace.table`) in the catalogue `catalog_name` of the database at `url`.

    `sink` is the directory of the table.
    """

    url: str
    catalog_name: str
    name: str
    sink: Location

    def catalog(self) -> "SqlCatalog":
        require_extra("pyiceberg", "sink.kind: iceberg", "write")
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy.exc import DBAPIError

        properties = {"uri": expanded(self.url), **iceberg_properties(self.sink.uri)}
        for _ in OWN_TABLES:
            with contextlib.suppress(DBAPIError):  # another process made one of them at the same moment
                return SqlCatalog(self.catalog_name, **properties)
        return SqlCatalog(self.catalog_name, **properties)

    def open(self, run: Run) -> "Table | None":
        """Return the table's newest version; None if there is none. Raise `CheckFailed` if it is not in the run's sink.

        Raise `ServiceUnavailable` if the catalogue does not answer.
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            with translate_publish_errors(str(run.target)):
                table = self.catalog().load_table(self.name)
        except NoSuchTableError:
            return None
        if table.location().rstrip("/") != location(run):
            raise CheckFailed(f"{self.name}: expected the table in {run.sink}, found it in {table.location()}.")
        table.metadata.properties["commit.retry.num-retries"] = "0"  # here, not in the table
        return table

    def open_or_create(self, run: Run, schema: pa.Schema) -> "Table":
        """Return the table's newest version. If there is none, create an empty table."""
        from pyiceberg.exceptions import TableAlreadyExistsError
        from sqlalchemy.exc import IntegrityError

        if table := self.open(run):
            return table
        catalog = self.catalog()
        with contextlib.suppress(IntegrityError):  # a faster process
            catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        with contextlib.suppress(TableAlreadyExistsError):
            transaction = catalog.create_table_transaction(self.name, whole_schema(run, schema), location(run))
            with transaction, transaction.update_spec() as spec:
                for name in partition_columns(run):
                    spec.add_identity(name)
        table = self.open(run)
        assert table is not None
        return table


def location(run: Run) -> str:
    """Return the directory of the run's table as a URI, such as `file:///data/table`."""
    filesystem, path = run.sink.open_filesystem()
    return (f"file://{path}" if is_local(filesystem) else run.sink.uri).rstrip("/")


def iceberg_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns in Iceberg's types: those of Delta, with whole numbers of 32 bits at least."""
    return with_types(delta_schema(schema), _widened)


def columns(table: "Table", run: Run) -> pa.Schema:
    """Return the table's columns in Iceberg's types, without its partition columns."""
    schema = table.schema().as_arrow()
    return iceberg_schema(columns_except(schema, partition_columns(run)))


def refuse_other_layout(table: "Table", run: Run) -> None:
    """Raise `CheckFailed` unless the table is partitioned by exactly the run's partition columns."""
    layout = [f"{field.name} ({field.transform})" for field in table.spec().fields]
    own_layout = [f"{name} (identity)" for name in partition_columns(run)]
    optimistic_commit.refuse_other_partitioning(run, layout, own_layout, "an Iceberg table", "sink.table")


def partition_files(table: "Table", run: Run) -> dict[str, int]:
    """Return the number of rows of each file in the run's partition, by its path below the table's directory.

    A file elsewhere has its whole path.
    """
    prefix = f"{location(run)}/"
    return {file.file_path.removeprefix(prefix): file.record_count for file in _data_files(table, run)}


def committed(table: "Table", run: Run) -> int | None:
    """Return the id of the snapshot that the run's attempt committed; None if it did not commit."""
    for snapshot in table.metadata.snapshots:
        if snapshot.summary and snapshot.summary.additional_properties.get(COMMITTED) == run.attempt:
            return int(snapshot.snapshot_id)
    return None


def commit(
    entry: CatalogEntry,
    run: Run,
    files: list[MergedFile],
    schema: pa.Schema,
    replaced: Sequence[str] | None = None,
) -> None:
    """Replace the `replaced` files of the run's partition, by default all, by `files` of these columns, in a snapshot.

    Raise `LeaseLost` if a later run has taken over, and `CheckFailed` if the table's columns changed meanwhile.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    paths = [f"{location(run)}/{path}" for path in as_paths(run, [file.name for file in files])]
    about = {f"overnight.{name}": value for name, value in optimistic_commit.about(run).items()}

    def replace(table: "Table") -> None:
        if fitted(schema, columns(table, run)) != schema:
            raise CheckFailed(f"{run.sink}: its columns changed type during the run. Nothing was published; run again.")
        transaction = table.transaction()
        with transaction.update_schema() as update:
            update.union_by_name(whole_schema(run, schema))
        names = transaction.table_metadata.schema().name_mapping.model_dump_json()  # of the files' columns to fields
        transaction.set_properties({"schema.name-mapping.default": names})
        update = transaction.update_snapshot(snapshot_properties=about)
        old_files = _replaced(table, run, replaced)
        with update.overwrite() if old_files or replaced is None else update.fast_append() as snapshot:
            for file in old_files:
                snapshot.delete_data_file(file)
            for file in parquet_files_to_data_files(table.io, transaction.table_metadata, iter(paths)):
                snapshot.append_data_file(file)
        transaction.commit_transaction()

    with translate_publish_errors(str(run.target)):
        optimistic_commit.commit(
            run,
            CommitFailedException,
            lambda: entry.open_or_create(run, schema),
            lambda table: committed(table, run) is not None,
            replace,
        )


def fence(entry: CatalogEntry, run: Run) -> bool:
    """Return True if the run's attempt has committed. Otherwise make its commit impossible, and return False."""
    from pyiceberg.exceptions import CommitFailedException

    def commit_empty_snapshot(table: "Table") -> None:
        transaction = table.transaction()
        with transaction.update_snapshot(snapshot_properties={FENCED_OFF: run.attempt}).fast_append():
            pass
        transaction.commit_transaction()

    with translate_publish_errors(str(run.target)):
        return optimistic_commit.fence(
            CommitFailedException,
            lambda: entry.open(run),
            lambda table: committed(table, run) is not None,
            commit_empty_snapshot,
        )


def _replaced(table: "Table", run: Run, paths: Sequence[str] | None) -> list[Any]:
    files = _data_files(table, run)
    if paths is None:
        return files
    if missing := optimistic_commit.files_missing(paths, partition_files(table, run)):
        raise CheckFailed(f"{run.sink}: {missing}. Nothing was published; run again.")
    prefix = f"{location(run)}/"
    return [file for file in files if file.file_path.removeprefix(prefix) in paths]


def _data_files(table: "Table", run: Run) -> list[Any]:
    own = partition_condition(run.partition_column, run.partition).replace("= date ", "= ")
    return [task.file for task in table.scan(row_filter=own).plan_files()]


def _widened(kind: pa.DataType) -> pa.DataType:
    """Widen whole numbers of 8 and 16 bits, which Iceberg lacks."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    return with_inner_fields(kind, lambda field: field.with_type(_widened(field.type)))
