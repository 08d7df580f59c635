"""Commit to a table while others commit too: on the version that was read, or again on a newer one.

Delta, Iceberg and Lance share this; each makes a version in its own way. `commit` and `fence` of one partition exclude
each other, because `fence` makes a version too. So a paused commit of the fenced attempt fails, reads the table again,
and finds that a later run holds the lease.
"""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import pyarrow as pa

from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import CheckFailed
from overnight.tasks.state import lease
from overnight.tasks.state.run import Run
from overnight.tasks.write.sink import as_paths, file_prefix

RETRIES = RetryPolicy(max_tries=100, first_wait_seconds=0.05, longest_wait_seconds=1.0, jitter=(0, 1))

Table = TypeVar("Table")
Result = TypeVar("Result")


def commit(
    run: Run,
    conflict: type[Exception],
    open_table: Callable[[], Table],
    has_committed: Callable[[Table], bool],
    replace: Callable[[Table], None],
) -> None:
    """Make one version of the table by `replace`, unless the run's attempt did so already.

    A `conflict` means that another commit came in between, and starts it again. Raise `LeaseLost` like `lease.check`.
    """

    def attempt() -> None:
        table = open_table()
        if has_committed(table):
            return  # the response to an earlier try was lost
        lease.check(run.ledger, run.token)  # after the table was read: a run that takes over now makes the commit fail
        replace(table)

    until_committed(attempt, conflict)


def fence(
    conflict: type[Exception],
    open_table: Callable[[], Table | None],
    has_committed: Callable[[Table], bool],
    take_its_place: Callable[[Table], None],
) -> bool:
    """Return True if an attempt has committed. Otherwise make its commit impossible, and return False.

    `take_its_place` makes a version on which a paused commit of the attempt fails. Without a table nothing is done.
    """

    def attempt() -> bool:
        table = open_table()
        if table is None:
            return False
        if has_committed(table):
            return True
        take_its_place(table)
        return False

    return until_committed(attempt, conflict)


def until_committed(attempt: Callable[[], Result], conflict: type[Exception]) -> Result:
    """Call `attempt` with growing waits while it raises `conflict`; after too many tries, raise the last conflict."""
    for seconds in RETRIES.waits():
        try:
            return attempt()
        except conflict:
            time.sleep(seconds)
    return attempt()


def about(run: Run) -> dict[str, str]:
    """Return the run's job, partition, generation and attempt, which name the owner of a version in its history."""
    return {name: getattr(run, name) for name in ("job", "partition", "generation", "attempt")}


def partition_columns(run: Run) -> list[str]:
    """Return the partition columns of the run's table; none for the partition `all`."""
    return list(partition_values(run.partition_column, run.partition))


def partition_scalars(run: Run) -> dict[str, pa.Scalar]:
    """Return the values of the partition columns: days as dates, and others as texts."""
    values = partition_values(run.partition_column, run.partition)
    return {name: pa.scalar(value) for name, value in values.items()}


def whole_schema(run: Run, schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the partition columns added; a `schema` without columns first gets `row_id`."""
    fields = list(schema) or [pa.field("row_id", pa.string())]
    return pa.schema([*fields, *(pa.field(name, value.type) for name, value in partition_scalars(run).items())])


def refuse_other_partitioning(run: Run, found: list[str], expected: list[str], kind: str, setting: str) -> None:
    """Raise `CheckFailed` if the partition columns `found` of the table differ from those `expected`."""
    if found != expected:
        raise CheckFailed(
            f"{run.sink}: expected {kind} partitioned by {expected or 'nothing'}, found one by {found or 'nothing'}. "
            f"Set sink.partition_column, or choose another {setting}."
        )


def files_without_table(run: Run) -> list[str]:
    """Return the files in the partition's directory of a sink that has no table yet, as paths below the sink."""
    return as_paths(run, [name for name in run.target.names() if name[0] not in "_."])


def rows_lost(found: int, expected: int) -> str:
    """Return as a text how many of the `expected` rows are missing from a table; empty if none is."""
    return f"{expected - found:,} of {expected:,} published rows" if found < expected else ""


def files_missing(files: Iterable[str], table_files: Iterable[str]) -> str:
    """Return a sentence if some of the published `files` are not files of the table any more; otherwise empty."""
    missing = sorted(set(files).difference(table_files))
    return f"the table no longer has the published file {missing[0]}: compaction replaced it" if missing else ""


def remove_files(run: Run) -> None:
    """Remove all files of the run's attempt, which must not have committed. So no version of the table needs them."""
    for name in run.target.names():
        if name.startswith(file_prefix(run)):
            (run.target / name).remove()
