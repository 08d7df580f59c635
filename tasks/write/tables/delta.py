"""The Delta table of a sink: read the content of a partition, and replace exactly this content by one commit.

By default, deltalake 1.6 retries a commit without a check, and of two processes that create a table, the second resets
the first one's commits. So each commit here is made on the exact version that was read. It has Delta's application
transaction: an identifier for the job and partition, and as its version a hash of the attempt. The commits are safe if
the store can create a file only if it does not exist, as local disks and S3 can.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows.arrow_types import columns_except
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
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

TAKEN_BACK = 0


def open_table(sink: Location) -> "DeltaTable | None":
    """Return the newest version of the Delta table in the directory `sink`, or None if there is none."""
    require_extra("deltalake", "sink.kind: delta", "write")
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(object_store_uri(sink), storage_options=delta_options(sink.uri))
    except TableNotFoundError:
        return None


def columns(table: "DeltaTable") -> pa.Schema:
    """Return the table's columns in Delta's types, without its partition columns."""
    partitioned_by = table.metadata().partition_columns
    schema = pa.schema(table.schema().to_arrow())
    return delta_schema(columns_except(schema, partitioned_by))


def partition_files(table: "DeltaTable", run: Run) -> dict[str, int]:
    """Return the number of rows of each file in the run's partition, by its path below the table."""
    texts, files = _texts(run), {}
    own = [f"partition.{name}" for name in texts]
    actions = pa.table(table.get_add_actions(flatten=True))
    for file in actions.select(["path", "num_records", *own]).to_pylist():
        if [str(file[name]) for name in own] == list(texts.values()):
            files[file["path"]] = file["num_records"] or 0
    return files


def compacted_files(sink: Location, version: int, paths: set[str]) -> set[str]:
    """Return the table's files without new rows: compaction put them in the place of others."""
    files, remaining = set[str](), set(paths)
    while remaining and version >= 0:
        try:
            lines = (sink / "_delta_log" / f"{version:020d}.json").read_bytes().splitlines()
        except FileNotFoundError:
            break  # the beginning of the log was cleaned up
        for line in lines:
            action = json.loads(line).get("add")
            if action and action["path"] in remaining:
                remaining.discard(action["path"])
                if not action["dataChange"]:
                    files.add(action["path"])
        version -= 1
    return files


def has_committed(table: "DeltaTable", run: Run) -> bool:
    """Return True if the run's attempt committed, and no later commit or fence of its partition followed."""
    return table.transaction_version(_application(run)) == _version(run)


def commit(run: Run, files: list[MergedFile], schema: pa.Schema, replaced: Sequence[str] | None = None) -> None:
    """Replace the `replaced` files of the run's partition, by default all, by `files` of these columns, in one commit.

    Raise `LeaseLost` if a later run has taken over, and `CheckFailed` if the table's columns changed meanwhile.
    """
    from deltalake.exceptions import CommitFailedError

    is_whole = replaced is None
    own = [(name, "=", value) for name, value in _texts(run).items()]

    def replace(table: "DeltaTable") -> None:
        if run.partition_directory and fitted(schema, columns(table)) != schema:
            raise CheckFailed(f"{run.sink}: its columns changed type during the run. Nothing was published; run again.")
        table.create_write_transaction(
            [*_actions(run, files), *_removals(table, run, replaced or ())],
            "overwrite" if is_whole else "append",
            _evolved(table, run, schema),
            partition_columns(run),
            (own or None) if is_whole else None,
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
        CommitFailedError, lambda: open_table(run.sink), lambda table: has_committed(table, run), take_its_place
    )


def _actions(run: Run, files: list[MergedFile]) -> "list[AddAction | RemoveAction]":
    from deltalake.transaction import AddAction

    actions: list[AddAction | RemoveAction] = []
    for file in files:
        [path] = as_paths(run, [file.name])
        moment, rows = time.time_ns() // 1_000_000, json.dumps({"numRecords": file.rows})
        actions.append(AddAction(path, file.bytes, _texts(run), moment, True, rows))
    return actions


def _removals(table: "DeltaTable", run: Run, paths: Sequence[str]) -> "list[RemoveAction]":
    from deltalake.transaction import RemoveAction

    if missing := optimistic_commit.files_missing(paths, partition_files(table, run)):
        raise CheckFailed(f"{run.sink}: {missing}. Nothing was published; run again.")
    values: dict[str, str | None] = dict.fromkeys(partition_columns(run), run.partition)
    moment = time.time_ns() // 1_000_000
    return [RemoveAction(path, True, moment, None, values) for path in paths]


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
            storage_options=delta_options(run.sink.uri),
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except DeltaError:
        if table := open_table(run.sink):
            return table
        raise


def _evolved(table: "DeltaTable", run: Run, schema: pa.Schema) -> "Schema":
    """Return the table's columns plus new ones of `schema`; only those of `schema` if the whole table is replaced."""
    from deltalake import Schema

    new = Schema.from_arrow(whole_schema(run, schema))
    if not run.partition_directory:
        return new
    fields = table.schema().fields
    names = {field.name for field in fields}
    return Schema([*fields, *(field for field in new.fields if field.name not in names)])


def _properties(run: Run, version: int) -> "CommitProperties":
    from deltalake.transaction import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"overnight": {**optimistic_commit.about(run), "token": run.token}},
        max_commit_retries=0,
        app_transactions=[Transaction(_application(run), version)],
    )


def _texts(run: Run) -> dict[str, str]:
    """Return the values of the partition columns as Delta's log has them."""
    return {name: str(value) for name, value in partition_values(run.partition_column, run.partition).items()}


def _application(run: Run) -> str:
    return f"overnight/{run.job}/{run.partition}"


def _version(run: Run) -> int:
    """Return 56 bits of a hash, never `TAKEN_BACK`: versions of attempts are only compared for equality."""
    return int.from_bytes(hashlib.sha256(run.attempt.encode()).digest()[:7]) | 1
