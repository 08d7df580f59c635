"""A partition that is replaced fifty times under a reader that never stops: every read is exactly one version.

The reader is a process of its own and reads as readers do, by listing; it may have to list again. A look up
`_overnight` that lasts for the whole exchange finds its link, which then leads to itself or to nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from overnight.tasks.write.sinks.parquet import ParquetSink
from tests.contracts.sinks.publications import numbered, publish_parts

pytestmark = pytest.mark.chaos

REPLACEMENTS, FILES, ROWS_A_FILE = 50, 3, 4
READER = """
import errno, json, os, sys
from pathlib import Path

import duckdb
import pyarrow.dataset as ds

target, ledger, stop = (Path(argument) for argument in sys.argv[1:])
versions, reads, receipts = [], 0, set()


def listed():
    dataset = ds.dataset(str(target), format="parquet", exclude_invalid_files=False)
    if not dataset.files:  # pyarrow leaves out what is gone by the time that it looks at it
        raise FileNotFoundError("No such file")
    return dataset.to_table()["x"].to_pylist()


def queried():
    return [x for (x,) in duckdb.sql(f"SELECT x FROM read_parquet('{target}/*.parquet')").fetchall()]


def receipt():
    try:
        return (ledger / "receipt.json").read_text()
    except OSError as error:  # one look up the path that lasted from before the exchange until it was over
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return (ledger / "receipt.json").read_text()


last = False
while not last:
    last = stop.exists()
    # The ledger is never out of reach, even while the directory that it lies in is exchanged.
    receipts.add(json.loads(receipt())["generation"])
    try:
        found = (listed, queried)[reads % 2]()
    except (OSError, duckdb.IOException) as error:
        if not any(text in str(error) for text in ("No such file", "No files found", os.strerror(errno.ELOOP))):
            raise
        continue
    reads += 1
    if not versions or versions[-1] != found:
        versions.append(found)
    if reads == 1:
        print("ready", flush=True)
print(json.dumps({"versions": versions, "receipts": len(receipts)}), flush=True)
os._exit(0)  # not through the ends of two libraries' threads, which abort now and then
"""


@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
@pytest.mark.usefixtures("ray_session")  # which merges parts into several files
def test_a_reader_sees_one_version_at_a_time_while_the_partition_is_replaced(partition: str, tmp_path: Path) -> None:
    def replace(version: int) -> None:
        parts = [{"x": [version] * ROWS_A_FILE} for _ in range(FILES)]
        publish_parts(numbered(tmp_path, version, partition), ParquetSink(path="-", target_file_size=1), *parts)

    replace(0)
    run, stop = numbered(tmp_path, 0, partition), tmp_path / "stop"
    command = [sys.executable, "-c", READER, str(run.target), str(run.ledger), str(stop)]
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
    assert all(len(found) == FILES * ROWS_A_FILE and len(set(found)) == 1 for found in seen["versions"])
    order = [found[0] for found in seen["versions"]]
    assert order == sorted(order)
    assert order[-1] == REPLACEMENTS
    assert min(len(order), seen["receipts"]) > 10
