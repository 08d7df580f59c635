"""The Lance table of a sink: read the fragments of a partition, and replace exactly these by one commit.

If a commit was made on an older version, Lance rebases it, unless another commit changed the same fragments. So
partitions that are published concurrently do not wait for each other. `fence` commits a version that changes nothing,
but is of a kind (Lance's "merge") on which no commit can be rebased. Each commit's transaction has its owner.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.partition_names import partition_condition
from overnight.tasks.errors import CheckFailed, ContractError
from overnight.tasks.rows.arrow_types import columns_except, kinds_in
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import object_store_uri, storage_options
from overnight.tasks.write.merge.known_types import of_known_types
from overnight.tasks.write.merge.merge_parts import MergedFile
from overnight.tasks.write.tables import optimistic_commit
from overnight.tasks.write.tables.delta_types import fitted
from overnight.tasks.write.tables.optimistic_commit import partition_columns, whole_schema

if TYPE_CHECKING:
    from lance import LanceDataset

VERSIONS_LOOKED_AT = 200  # between a commit and the repair that searches for it
WRITTEN = ".fragments"
COMMITTED, FENCED_OFF = "overnight.attempt", "overnight.fenced-off"


@dataclass(frozen=True)
class Fragment:
    """A fragment of a Lance table, which is some of its rows: `text` has Lance's metadata of it as JSON."""

    text: str


def open_table(sink: Location, version: int | None = None) -> "LanceDataset | None":
    """Return a version of the Lance table in the directory `sink`, by default the newest; None if there is no table."""
    require_extra("lance", "sink.kind: lance", "write")
    import lance

    # The first commit makes the directory before it writes a version there.
    if not any(name.endswith(".manifest") for name in (sink / "_versions").names()):
        return None
    options = storage_options(sink.uri)
    return lance.dataset(object_store_uri(sink), version=version, storage_options=options)


def refuse_other_layout(table: "LanceDataset", run: Run) -> None:
    """Raise `CheckFailed` if the table lacks a column for the partition."""
    if missing := [name for name in partition_columns(run) if name not in table.schema.names]:
        raise CheckFailed(
            f"{run.sink}: expected a Lance table with a column {missing[0]}, found "
            f"{', '.join(table.schema.names)}. Set sink.partition_column, or choose another sink.path."
        )


def refuse_types(schema: pa.Schema) -> None:
    """Raise `ContractError` for a column whose type Lance 14 cannot store."""
    for field in schema:
        for kind in kinds_in(field.type):
            if types.is_map(kind):
                remedy = "Return a list of structs with the fields key and value"
            elif types.is_decimal32(kind) or types.is_decimal64(kind):
                remedy = "Cast it to decimal128"
            elif types.is_fixed_size_list(kind) and not _is_of_fixed_width(kind.value_type):
                remedy = "Return lists of any length"
            else:
                continue
            raise ContractError(
                f"column {field.name!r}: a Lance table cannot store {kind}. {remedy}, or publish to another sink.",
                "write",
            )


def _is_of_fixed_width(kind: pa.DataType) -> bool:
    if types.is_fixed_size_list(kind):
        return _is_of_fixed_width(kind.value_type)
    return types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)


def partition_files(table: "LanceDataset", run: Run) -> list[str]:
    """Return the data files with rows of the partition, as paths below the table."""
    rows, paths = rows_of_partition(table, run), []
    for fragment in table.get_fragments():
        if fragment.fragment_id in rows:
            paths += [f"data/{file.path}" for file in fragment.metadata.files]
    return sorted(paths)


def rows_of_partition(table: "LanceDataset", run: Run) -> dict[int, int]:
    """Return the number of rows of the partition in each fragment with such rows, by the fragment's id."""
    if not run.partition_directory:
        return {fragment.fragment_id: fragment.count_rows() for fragment in table.get_fragments()}
    rows: dict[int, int] = {}
    scanner = table.scanner(columns=[], filter=_own(run), with_row_address=True)
    for batch in scanner.to_batches():
        numbers, counts = np.unique(batch["_rowaddr"].to_numpy() >> np.uint64(32), return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            rows[number] = rows.get(number, 0) + count
    return rows


def fitted_schema(table: "LanceDataset | None", run: Run, schema: pa.Schema) -> pa.Schema:
    """Return the columns of `schema` with their types in the table, without columns and struct fields of type null."""
    schema = of_known_types(schema)
    return fitted(schema, table.schema) if table else schema


def complete(run: Run, schema: pa.Schema) -> None:
    """Create the run's table without rows, or add the columns of `schema` that it lacks. Another process may, too."""
    from lance import LanceOperation
    from lance.commit import CommitConflictError

    whole = whole_schema(run, schema)

    def attempt() -> None:
        table = open_table(run.sink)
        if table is None:
            try:
                # Of two concurrent write_dataset(mode="create"), the second would overwrite the first's table.
                _commit(run, 0, LanceOperation.Overwrite(whole, []), {})
            except OSError:
                if open_table(run.sink) is None:
                    raise
                attempt()
            return
        new = columns_except(whole, table.schema.names)
        if len(new):
            table.add_columns(new)

    optimistic_commit.until_committed(attempt, CommitConflictError)


def write_fragments(run: Run, files: list[MergedFile]) -> list[Fragment]:
    """Write the rows of the files as fragments of the run's table. No version of the table contains them yet."""
    if len(files) <= 1:
        return _write(run, files[0].place) if files else []
    import ray

    remote = ray.remote(num_cpus=1, max_retries=3)(_write)
    results = ray.get([remote.remote(run, file.place) for file in files])
    return list(itertools.chain.from_iterable(results))


def data_files(fragments: Iterable[Fragment]) -> list[str]:
    """Return the data files of the fragments, as paths below the table."""
    return [f"data/{file['path']}" for fragment in fragments for file in json.loads(fragment.text)["files"]]


def written_files(rows: Location) -> list[str]:
    """Return the data files of all fragments that were made of the Parquet files in the directory `rows`."""
    fragments = []
    for name in rows.names():
        if name.endswith(WRITTEN):
            fragments += [Fragment(line.decode()) for line in (rows / name).read_bytes().splitlines()]
    return data_files(fragments)


def committed(table: "LanceDataset", run: Run) -> int | None:
    """Return the version that the run's attempt committed, if it is among the `VERSIONS_LOOKED_AT` newest ones."""
    for version in itertools.islice(range(table.version, 0, -1), VERSIONS_LOOKED_AT):
        try:
            transaction = table.read_transaction(version)
        except (OSError, ValueError):  # cleaned up
            return None
        if transaction and (transaction.transaction_properties or {}).get(COMMITTED) == run.attempt:
            return version
    return None


def commit(run: Run, fragments: list[Fragment], keep: bool = False) -> None:
    """Replace the partition's rows by those of the fragments, in one commit; with `keep`, only add the new rows.

    Raise `LeaseLost` if a later run has taken over, and `CheckFailed` if the table no longer exists.
    """
    from lance import LanceOperation
    from lance.commit import CommitConflictError
    from lance.fragment import FragmentMetadata

    about = {f"overnight.{name}": value for name, value in optimistic_commit.about(run).items()}
    new = [FragmentMetadata.from_json(fragment.text) for fragment in fragments]

    def opened() -> "LanceDataset":
        table = open_table(run.sink)
        if table is None:
            raise CheckFailed(f"{run.sink}: the table no longer exists. Nothing was published; run again.")
        return table

    def replace(table: "LanceDataset") -> None:
        old_ids, remainders = [], []
        rows_by_fragment = {} if keep else rows_of_partition(table, run)
        for fragment in table.get_fragments():
            rows = rows_by_fragment.get(fragment.fragment_id, 0)
            if rows and rows == fragment.count_rows():
                old_ids.append(fragment.fragment_id)
            elif rows and (remainder := fragment.delete(_own(run))):  # compaction put other partitions beside it
                remainders.append(remainder)
        operation = LanceOperation.Update(removed_fragment_ids=old_ids, updated_fragments=remainders, new_fragments=new)
        _commit(run, table.version, operation, about)

    optimistic_commit.commit(run, CommitConflictError, opened, lambda table: committed(table, run) is not None, replace)


def fence(run: Run) -> bool:
    """Return True if the run's attempt has committed. Otherwise make its commit impossible, and return False."""
    from lance import LanceOperation
    from lance.commit import CommitConflictError

    def take_its_place(table: "LanceDataset") -> None:
        same = LanceOperation.Merge([fragment.metadata for fragment in table.get_fragments()], table.lance_schema)
        _commit(run, table.version, same, {FENCED_OFF: run.attempt})

    return optimistic_commit.fence(
        CommitConflictError,
        lambda: open_table(run.sink),
        lambda table: committed(table, run) is not None,
        take_its_place,
    )


def _write(run: Run, rows: Location) -> list[Fragment]:
    """Write a Parquet file's rows as fragments. Their metadata is kept beside it, so that they can be removed."""
    from lance.fragment import write_fragments

    table = open_table(run.sink)
    assert table is not None
    with rows.open() as content:
        file = pq.ParquetFile(content)
        # Lance compares the names of a list's items too: "element" in Parquet, often "item" in Arrow.
        schema = pa.schema(list(map(table.schema.field, file.schema_arrow.names)))
        reader = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches()).cast(schema)
        metadata = write_fragments(reader, table, mode="append", storage_options=storage_options(run.sink.uri))
    fragments = [Fragment(json.dumps(fragment.to_json())) for fragment in metadata]
    lines = "".join(f"{fragment.text}\n" for fragment in fragments)
    (rows.parent / (rows.name + WRITTEN)).write_bytes(lines.encode())
    return fragments


def _own(run: Run) -> str:
    return partition_condition(run.partition_column, run.partition)


def _commit(run: Run, version: int, operation: Any, properties: dict[str, str]) -> None:
    """Make the operation the table's next version. It fails if another commit came after `version`, 0 for none."""
    import lance

    transaction = lance.Transaction(version, operation, transaction_properties=properties)
    options = storage_options(run.sink.uri)
    lance.LanceDataset.commit(object_store_uri(run.sink), transaction, storage_options=options, max_retries=0)
