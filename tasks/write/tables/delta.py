"""The Delta table of a sink: read the content of a partition, and replace exactly this content by one commit.

Every commit is made on the exact version of the table that was read. Another commit in between makes it fail, and it is
tried again on the new version. By default, deltalake 1.6 retries without a check: two processes that create a table at
the same time both succeed. The second one then resets the first one's commits. The commits here are safe if the store
can create a file only if it does not exist, as local disks and S3 can.

Each commit has Delta's own application transaction: an identifier for the job and partition, and as its version a hash
of the attempt. It shows whether an attempt was the last to commit. `fence` commits another one, so that a paused commit
fails.
"""

import hashlib
import json
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import delta_options, object_store_uri
from overnight.tasks.write.merge.merge_parts import MergedFile
from overnight.tasks.write.sink import as_paths
from overnight.tasks.write.tables import optimistic_commit
from overnight.tasks.write.tables.delta_types import delta_schema, fitted
from overnight.tasks.write.tables.optimistic_commit import partition_columns, whole_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import CommitProperties, RemoveAction

TAKEN_BACK = 0


def open_table(sink: Location) -> "DeltaTable | None":
    """Return the newest version of the Delta table in the directory `sink`, or None if there is none.

    Raise `JobError` if deltalake is not installed.
    """
    require_extra("deltalake", "sink.kind: delta", "write")
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(object_store_uri(sink), storage_options=delta_options())
    except TableNotFoundError:
        return None


def columns(table: "DeltaTable") -> pa.Schema:
    """Return the table's columns in Delta's types, without its partition columns."""
    partitioned_by = table.metadata().partition_columns
    schema = pa.schema(table.schema().to_arrow())
    return delta_schema(pa.schema([field for field in schema if field.name not in partitioned_by]))


def partition_files(table: "DeltaTable", run: Run) -> list[str]:
    """Return the files that this version of the table has in the run's partition, as paths below the table."""
    files = pa.table(table.get_add_actions(flatten=True))
    if not run.partition_directory:
        return list(files["path"].to_pylist())
    days = files[f"partition.{run.partition_column}"].to_pylist()
    return [path for path, day in zip(files["path"].to_pylist(), days, strict=True) if str(day) == run.partition]


def partition_rows(table: "DeltaTable", run: Run) -> int:
    """Return the number of rows in the run's partition, from the table's statistics."""
    names = set(partition_files(table, run))
    files = pa.table(table.get_add_actions(flatten=True))
    counts = zip(files["path"].to_pylist(), files["num_records"].to_pylist(), strict=True)
    return sum(count or 0 for path, count in counts if path in names)


def has_committed(table: "DeltaTable", run: Run) -> bool:
    """Return True if the run's attempt committed, and no later commit or fence of its partition followed."""
    return table.transaction_version(_application(run)) == _version(run)


def commit(run: Run, files: list[MergedFile], schema: pa.Schema, keep: bool = False) -> None:
    """Replace the run's partition by `files`, in one commit, and create the table if there is none.

    With `keep`, add the files to the partition's own instead. `schema` has the columns of the files; new columns are
    added to the table. Raise `LeaseLost` if a later run has taken over. Raise `CheckFailed` if the table's columns
    changed since the files were made. Errors of deltalake propagate.
    """
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction

    added: list[AddAction | RemoveAction] = [
        AddAction(
            path=path,
            size=file.bytes,
            partition_values={run.partition_column: run.partition} if run.partition_directory else {},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )
        for path, file in zip(as_paths(run, [file.name for file in files]), files, strict=True)
    ]

    def replace(table: "DeltaTable") -> None:
        if run.partition_directory and fitted(schema, columns(table)) != schema:
            raise CheckFailed(f"{run.sink}: its columns changed type during the run. Nothing was published; run again.")
        table.create_write_transaction(
            added,
            "append" if keep else "overwrite",
            _evolved(table, run, schema),
            partition_columns(run),
            [(run.partition_column, "=", run.partition)] if run.partition_directory and not keep else None,
            commit_properties=_properties(run, _version(run)),
        )

    optimistic_commit.commit(
        run,
        CommitFailedError,
        lambda: open_table(run.sink) or _created(run, schema),
        lambda table: has_committed(table, run),
        replace,
    )


def fence(run: Run) -> bool:
    """Return True if the run's attempt has committed. Otherwise make its commit impossible, and return False."""
    from deltalake.exceptions import CommitFailedError

    def take_its_place(table: "DeltaTable") -> None:
        table.create_write_transaction(
            [], "append", table.schema(), partition_columns(run), commit_properties=_properties(run, TAKEN_BACK)
        )

    return optimistic_commit.fence(
        CommitFailedError,
        lambda: open_table(run.sink),
        lambda table: has_committed(table, run),
        take_its_place,
    )


def _created(run: Run, schema: pa.Schema) -> "DeltaTable":
    """Create and return an empty table, or return the table of a faster process."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import CommitProperties

    try:
        return DeltaTable.create(
            object_store_uri(run.sink),
            Schema.from_arrow(whole_schema(run, schema)),
            partition_by=partition_columns(run),
            storage_options=delta_options(),
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except DeltaError as error:
        if table := open_table(run.sink):
            return table
        raise error


def _evolved(table: "DeltaTable", run: Run, schema: pa.Schema) -> "Schema":
    """Return the table's columns plus new ones of `schema`; only those of `schema` if the whole table is replaced."""
    from deltalake import Schema

    ours = Schema.from_arrow(whole_schema(run, schema))
    if not run.partition_directory:
        return ours
    known = table.schema().fields
    names = {field.name for field in known}
    return Schema([*known, *(field for field in ours.fields if field.name not in names)])


def _properties(run: Run, version: int) -> "CommitProperties":
    from deltalake.transaction import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"overnight": {**optimistic_commit.about(run), "token": run.token}},
        max_commit_retries=0,
        app_transactions=[Transaction(_application(run), version)],
    )


def _application(run: Run) -> str:
    return f"overnight/{run.job}/{run.partition}"


def _version(run: Run) -> int:
    """Return 56 bits of a hash, never `TAKEN_BACK`: versions of attempts are only compared for equality."""
    return int.from_bytes(hashlib.sha256(run.attempt.encode()).digest()[:7]) | 1
