"""The Iceberg table of a sink: read the content of a partition, and replace exactly this content by one snapshot.

Every snapshot is committed on exactly the snapshot that was read. Another commit in between makes it fail, and it is
tried again on the new snapshot. The retries of pyiceberg are switched off, because they do not check the lease.

The snapshot's summary has its owner: job, partition, generation, attempt. `fence` commits an empty snapshot in the name
of an attempt that did not commit. So a paused commit of that attempt fails, and then finds that its lease is lost.
"""

import contextlib
import os
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import Run
from overnight.tasks.storage.database import expanded
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.write.merge.merge_parts import MergedFile
from overnight.tasks.write.sink import as_paths
from overnight.tasks.write.tables import optimistic_commit
from overnight.tasks.write.tables.delta_types import delta_schema, fitted
from overnight.tasks.write.tables.optimistic_commit import partition_columns, whole_schema

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

COMMITTED, FENCED_OFF = "overnight.attempt", "overnight.fenced-off"


@dataclass(frozen=True)
class Opened:
    """The table `name` (`namespace.table`) in the catalogue `catalog_name` of the database at `url`."""

    url: str
    catalog_name: str
    name: str

    def catalog(self) -> "SqlCatalog":
        require_extra("pyiceberg", "sink.kind: iceberg", "write")
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy.exc import DBAPIError

        properties = {"uri": expanded(self.url), **_storage_properties()}
        try:
            return SqlCatalog(self.catalog_name, **properties)
        except DBAPIError:  # another process made the catalogue's own tables at the same moment
            return SqlCatalog(self.catalog_name, **properties)

    def open(self, run: Run) -> "Table | None":
        """Return the table's newest version; None if there is none.

        Raise `CheckFailed` if the table's directory is not the directory of the run's sink.
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self.catalog().load_table(self.name)
        except NoSuchTableError:
            return None
        if table.location().rstrip("/") != location(run):
            raise CheckFailed(f"{self.name}: expected the table in {run.sink}, found it in {table.location()}.")
        table.metadata.properties["commit.retry.num-retries"] = "0"  # here, not in the table
        return table


def location(run: Run) -> str:
    """Return the directory of the run's table as a URI, such as `file:///data/table`."""
    filesystem, path = run.sink.open_filesystem()
    return (f"file://{path}" if is_local(filesystem) else run.sink.uri).rstrip("/")


def iceberg_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns in Iceberg's types, without columns that have no value in any row.

    Raise `ContractError` for a type that Iceberg cannot represent.
    """
    return pa.schema([(field.name, _widened(field.type)) for field in delta_schema(schema)])


def columns(table: "Table", run: Run) -> pa.Schema:
    """Return the table's columns in Iceberg's types, without its partition column."""
    schema = table.schema().as_arrow()
    return iceberg_schema(pa.schema([field for field in schema if field.name not in partition_columns(run)]))


def refuse_other_layout(table: "Table", run: Run) -> None:
    """Raise `CheckFailed` unless the table is partitioned by exactly the run's partition column.

    For the partition `all`, the table must be unpartitioned.
    """
    found = [f"{field.name} ({field.transform})" for field in table.spec().fields]
    expected = [f"{name} (identity)" for name in partition_columns(run)]
    optimistic_commit.refuse_other_partitioning(run, found, expected, "an Iceberg table", "sink.table")


def partition_files(table: "Table", run: Run) -> list[str]:
    """Return the files that this version of the table has in the run's partition.

    They are paths below the table's directory, or whole paths of files elsewhere.
    """
    return [file.file_path.removeprefix(f"{location(run)}/") for file in _data_files(table, run)]


def partition_rows(table: "Table", run: Run) -> int:
    """Return the number of rows in the run's partition."""
    return sum(file.record_count for file in _data_files(table, run))


def committed(table: "Table", run: Run) -> int | None:
    """Return the id of the snapshot that the run's attempt committed; None if it did not commit."""
    for snapshot in table.metadata.snapshots:
        if snapshot.summary and snapshot.summary.additional_properties.get(COMMITTED) == run.attempt:
            return int(snapshot.snapshot_id)
    return None


def commit(opened: Opened, run: Run, files: list[MergedFile], schema: pa.Schema, keep: bool = False) -> None:
    """Replace the run's partition by `files`, in one snapshot, and create the table if there is none.

    With `keep`, add the files to the partition's own instead. `schema` has the columns of the files without the
    partition column; new columns are added to the table. Raise `LeaseLost` if a later run has taken over. Raise
    `CheckFailed` if the table's columns changed since the files were made.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    paths = [f"{location(run)}/{path}" for path in as_paths(run, [file.name for file in files])]

    def replace(table: "Table") -> None:
        if fitted(schema, columns(table, run)) != schema:
            raise CheckFailed(f"{run.sink}: its columns changed type during the run. Nothing was published; run again.")
        transaction = table.transaction()
        with transaction.update_schema() as update:
            update.union_by_name(whole_schema(run, schema))
        _map_names(transaction)
        about = {f"overnight.{name}": value for name, value in optimistic_commit.about(run).items()}
        update = transaction.update_snapshot(snapshot_properties=about)
        with update.fast_append() if keep else update.overwrite() as snapshot:
            for file in [] if keep else _data_files(table, run):
                snapshot.delete_data_file(file)
            for file in parquet_files_to_data_files(table.io, transaction.table_metadata, iter(paths)):
                snapshot.append_data_file(file)
        transaction.commit_transaction()

    optimistic_commit.commit(
        run,
        CommitFailedException,
        lambda: opened.open(run) or _created(opened, run, schema),
        lambda table: committed(table, run) is not None,
        replace,
    )


def fence(opened: Opened, run: Run) -> bool:
    """Return True if the run's attempt has committed. Otherwise make its commit impossible, and return False."""
    from pyiceberg.exceptions import CommitFailedException

    def take_its_place(table: "Table") -> None:
        transaction = table.transaction()
        with transaction.update_snapshot(snapshot_properties={FENCED_OFF: run.attempt}).fast_append():
            pass
        transaction.commit_transaction()

    return optimistic_commit.fence(
        CommitFailedException,
        lambda: opened.open(run),
        lambda table: committed(table, run) is not None,
        take_its_place,
    )


def _storage_properties() -> dict[str, str]:
    """Return options that pyiceberg does not read from the environment itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    found = {"s3.endpoint": endpoint, "s3.region": region}
    return {name: value for name, value in found.items() if value}


def _created(opened: Opened, run: Run, schema: pa.Schema) -> "Table":
    """Create and return an empty table, or return the table of a faster process."""
    from pyiceberg.exceptions import TableAlreadyExistsError
    from sqlalchemy.exc import IntegrityError

    catalog, namespace = opened.catalog(), opened.name.rpartition(".")[0]
    with contextlib.suppress(IntegrityError):
        catalog.create_namespace_if_not_exists(namespace)
    try:
        transaction = catalog.create_table_transaction(opened.name, whole_schema(run, schema), location(run))
        with transaction, transaction.update_spec() as spec:
            for name in partition_columns(run):
                spec.add_identity(name)
    except TableAlreadyExistsError:
        pass
    table = opened.open(run)
    assert table is not None
    return table


def _map_names(transaction: Any) -> None:
    """Set the table property that maps the files' column names to fields."""
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({"schema.name-mapping.default": mapping})


def _data_files(table: "Table", run: Run) -> list[Any]:
    own = f"{run.partition_column} = '{date.fromisoformat(run.partition)}'" if run.partition_directory else "true"
    return [task.file for task in table.scan(row_filter=own).plan_files()]


def _widened(kind: pa.DataType) -> pa.DataType:
    """Widen whole numbers of 8 and 16 bits, which Iceberg lacks."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_map(kind):
        return pa.map_(_widened(kind.key_type), _widened(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _widened(field.type)) for field in kind])
    return pa.list_(_widened(kind.value_type)) if pa.types.is_list(kind) else kind
