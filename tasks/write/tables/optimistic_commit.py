"""A commit to a table with concurrent commits: made on the version that was read, or made again.

Delta, Iceberg and Lance share this; each makes a version in its own way. A commit fails if another came in between. It
is then tried again on the new version, with the lease checked once more.

`commit` and `fence` of one partition exclude each other: `fence` makes a version too. So a paused commit of its attempt
fails, reads the table again, and finds that a later run holds the lease.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

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
    """Make one version of the table in which the run's partition is replaced.

    Raises:
        LeaseLost: a later run has taken over.
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
    """Return whether the attempt has committed. If not, it cannot any more: `take_its_place` made a version."""

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
    """Return the result of `attempt`, which is called again after a conflict. Raise the last of too many conflicts."""
    for seconds in RETRIES.waits():
        try:
            return attempt()
        except conflict:
            time.sleep(seconds)
    return attempt()


def about(run: Run) -> dict[str, str]:
    """Return the owner of a version, for the table's own history."""
    return {name: getattr(run, name) for name in ("job", "partition", "generation", "attempt")}


def partition_columns(run: Run) -> list[str]:
    """Return the partition columns of the run's table; none for the partition `all`."""
    return [run.partition_column] if run.partition_directory else []


def whole_schema(run: Run, schema: pa.Schema) -> pa.Schema:
    """Return `schema` and the partition column; a table without any row has at least `row_id`."""
    fields = list(schema) or [pa.field("row_id", pa.string())]
    return pa.schema([*fields, *(pa.field(name, pa.date32()) for name in partition_columns(run))])


def refuse_other_partitioning(run: Run, found: list[str], expected: list[str], kind: str, setting: str) -> None:
    """Raise `CheckFailed` if the table has another partitioning. `setting` is another setting that may be changed."""
    if found != expected:
        raise CheckFailed(
            f"{run.sink}: expected {kind} partitioned by {expected or 'nothing'}, found one by {found or 'nothing'}. "
            f"Set sink.partition_column, or choose another {setting}."
        )


def files_without_table(run: Run) -> list[str]:
    """Return the files in the partition's place, as paths below the sink, while there is no table."""
    return [path for path in as_paths(run, run.target.names()) if path.rsplit("/", 1)[-1][0] not in "_."]


def rows_lost(found: int, expected: int) -> str:
    """Return how many published rows of a partition a table no longer has, in words; empty if it has them."""
    return f"{expected - found:,} of {expected:,} published rows" if found < expected else ""


def remove_files(run: Run) -> None:
    """Remove the files of the run's attempt that no version of the table contains."""
    for name in run.target.names():
        if name.startswith(file_prefix(run)):
            (run.target / name).remove()
