"""A partition that is replaced fifty times under a reader that never stops: every read is exactly one version.

The reader is a process of its own and reads as readers do, by listing; on plain Parquet it may have to list again. A
look up `_overnight` that lasts for the whole exchange finds its link, which then leads to itself or to nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.write.sink import Sink
from overnight.tasks.write.sinks.delta import DeltaSink
from overnight.tasks.write.sinks.parquet import ParquetSink
from tests.contracts.sinks.publications import numbered, publish_parts

pytestmark = pytest.mark.chaos

REPLACEMENTS, FILES, ROWS_A_FILE = 50, 3, 4
READER = """
import errno, json, os, sys
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
from deltalake import DeltaTable

kind, target, ledger, stop = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
versions, repeats, reads, receipts = [], 0, 0, set()


def listed():
    dataset = ds.dataset(str(target), format="parquet", exclude_invalid_files=False)
    if not dataset.files:  # pyarrow leaves out what is gone by the time that it looks at it
        raise FileNotFoundError("No such file")
    return dataset.to_table()["x"].to_pylist()


def queried():
    return [x for (x,) in duckdb.sql(f"SELECT x FROM read_parquet('{target}/*.parquet')").fetchall()]


def committed():
    return DeltaTable(target).to_pyarrow_table()["x"].to_pylist()


def ledger_read():
    try:
        return (ledger / "receipt.json").read_text()
    except OSError as error:  # one look up the path that lasted from before the exchange until it was over
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return (ledger / "receipt.json").read_text()


ways = [committed] if kind == "delta" else [listed, queried]
last = False
while not last:
    last = stop.exists()
    # The ledger is never out of reach, even while the directory that it lies in is exchanged.
    receipts.add(json.loads(ledger_read())["generation"])
    try:
        found = ways[reads % len(ways)]()
    except (OSError, duckdb.IOException) as error:
        again = any(text in str(error) for text in ("No such file", "No files found", os.strerror(errno.ELOOP)))
        if kind == "delta" or not again:
            raise
        repeats += 1
        continue
    reads += 1
    if not versions or versions[-1] != found:
        versions.append(found)
    if reads == 1:
        print("ready", flush=True)
print(json.dumps({"versions": versions, "repeats": repeats, "reads": reads, "receipts": len(receipts)}), flush=True)
os._exit(0)  # not through the ends of three libraries' threads, which abort now and then
"""


@pytest.mark.parametrize(
    ("kind", "partition"), [("parquet", "2026-01-02"), ("parquet", "all"), ("delta", "2026-01-02"), ("delta", "all")]
)
def test_a_reader_sees_one_version_at_a_time_while_the_partition_is_replaced(
    kind: str, partition: str, ray_session: None, tmp_path: Path
) -> None:
    sink: Sink = ParquetSink(path="-", target_file_size=1) if kind == "parquet" else DeltaSink(path="-")

    def replace(version: int) -> None:
        parts = [{"x": pa.array([version] * ROWS_A_FILE)} for _ in range(FILES)]
        publish_parts(numbered(tmp_path, version, partition), sink, *parts)

    replace(0)
    run, stop = numbered(tmp_path, 0, partition), tmp_path / "stop"
    place = run.target if kind == "parquet" else run.sink
    command = [sys.executable, "-c", READER, kind, str(place), str(run.ledger), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            for version in range(1, REPLACEMENTS + 1):
                replace(version)
        finally:
            stop.touch()
        seen = json.loads(reader.stdout.read())
    assert reader.returncode == 0
    print(f"{seen['reads']} reads, {len(seen['versions'])} versions, {seen['repeats']} repeated listings")
    assert all(len(found) == FILES * ROWS_A_FILE and len(set(found)) == 1 for found in seen["versions"])
    order = [found[0] for found in seen["versions"]]
    assert order == sorted(order)
    assert order[-1] == REPLACEMENTS
    assert len(order) > 10
    assert seen["receipts"] > 10
