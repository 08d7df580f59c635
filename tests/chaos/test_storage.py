"""An S3 server that dies and comes back, freezes, or stays away; a disk that is full: no row lost, none doubled."""

import contextlib
import io
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.chaos.runs import Start, finish, traced_rows, wait_until, write_model

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

ROWS, PER_FILE = 600, 10
TRIED_ROWS = 150


class Server:
    """An S3 server in a process of its own that keeps its data; it answers on the same port whenever it runs."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.client = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        self.start()

    def start(self) -> None:
        data = {"S3_PERSIST": "1", "S3_DATA_DIR": str(self._folder / "s3"), "STATE_DIR": str(self._folder / "state")}
        place = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(self._port)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ministack"],
            env={**os.environ, **data, **place},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.1)
        pytest.fail("the S3 server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Bucket:
    """A bucket of the test's own with 60 small Parquet files below `in/`."""

    server: Server
    name: str

    def fill(self) -> None:
        self.server.client.create_bucket(Bucket=self.name)
        for name, content in inputs().items():
            self.server.client.put_object(Bucket=self.name, Key=f"in/{name}", Body=content)

    def write_job(self, folder: Path) -> None:
        write_job(folder, f"s3://{self.name}/in", f"s3://{self.name}/out")

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def published(self, file: str) -> bytes:
        return bytes(self.server.client.get_object(Bucket=self.name, Key=f"out/{file}")["Body"].read())


def inputs() -> dict[str, bytes]:
    files = {}
    for i in range(ROWS // PER_FILE):
        buffer = io.BytesIO()
        pq.write_table(pa.table({"x": range(i * PER_FILE, (i + 1) * PER_FILE)}), buffer)
        files[f"{i:03d}.parquet"] = buffer.getvalue()
    return files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(tmp_path_factory.mktemp("server"), port)
    yield server
    server.kill()


@pytest.fixture
def bucket(server: Server) -> Bucket:
    bucket = Bucket(server, f"bucket-{uuid.uuid4().hex[:8]}")
    bucket.fill()
    return bucket


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """Where `start` runs `job.yaml`."""
    write_model(tmp_path)
    return tmp_path


def write_job(folder: Path, source: str, sink: str) -> None:
    """The step that is slow runs between one file's read and the next."""
    job = {
        "name": "slow",
        "source": {"kind": "parquet", "path": source},
        "preprocess": [
            {"kind": "filter_rows", "expression": "x % 10 != 3"},
            {"kind": "python", "target": "slow_model:Slow"},
        ],
        "sink": {"kind": "parquet", "path": sink, "rows_per_part": 40, "target_file_size": 4000},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    return random.Random(seed)


def assert_as_undisturbed(receipt: dict[str, Any], read: Callable[[str], bytes]) -> None:
    rows = [row for file in receipt["files"] for row in pq.read_table(io.BytesIO(read(file))).to_pylist()]
    assert sorted((row["x"], row["twice"], row["row_id"]) for row in rows) == sorted(
        (x, 2 * x, f"{x // PER_FILE:03d}.parquet#{x % PER_FILE}") for x in range(ROWS) if x % 10 != 3
    )
    assert (receipt["rows_in"], receipt["rows_filtered"], receipt["rows_quarantined"]) == (ROWS, ROWS // 10, 0)


def moment(doing: str, chance: random.Random, bucket: Bucket, folder: Path) -> Callable[[], bool]:
    """Tells when to strike: in the middle of what the run is doing then."""
    count = chance.randint(2, 6)
    happened: dict[str, Callable[[], bool]] = {
        "read": lambda: traced_rows(folder) >= 50 * count,
        "staging": lambda: sum(key.endswith(".part") for key in bucket.keys("out/_overnight/")) >= count,
        "merging": lambda: len(bucket.keys("out/_publishing-")) >= count,
        "publish": lambda: len(bucket.keys("out/part-")) >= count,
    }
    return happened[doing]


def assert_nothing_is_left_behind(bucket: Bucket, receipt: dict[str, Any]) -> None:
    listed = [key for key in bucket.keys("out/") if not key.startswith("out/_overnight/")]
    assert sorted(listed) == sorted(f"out/{file}" for file in receipt["files"])


@pytest.mark.parametrize("doing", ["read", "staging", "merging", "publish"])
def test_a_server_that_is_killed_and_comes_back_costs_only_time(
    doing: str, server: Server, bucket: Bucket, start: Start, tmp_path: Path, chance: random.Random
) -> None:
    bucket.write_job(tmp_path)
    process = start(**server.environment)
    wait_until(moment(doing, chance, bucket, tmp_path), process)
    server.kill()
    time.sleep(chance.uniform(1, 5))
    assert process.poll() is None
    server.start()
    receipt = finish(process)
    assert_as_undisturbed(receipt, bucket.published)
    assert_nothing_is_left_behind(bucket, receipt)
    print("traced", traced_rows(tmp_path))
    assert receipt["rows_resumed"] == 0  # nothing began anew
    assert traced_rows(tmp_path) <= ROWS * 9 // 10 + TRIED_ROWS


def test_a_server_that_freezes_for_half_a_minute_costs_only_time(
    server: Server, bucket: Bucket, start: Start, tmp_path: Path, chance: random.Random
) -> None:
    bucket.write_job(tmp_path)
    process = start(**server.environment)
    wait_until(moment(chance.choice(["read", "staging"]), chance, bucket, tmp_path), process)
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(30)
    server.process.send_signal(signal.SIGCONT)
    receipt = finish(process)
    assert_as_undisturbed(receipt, bucket.published)
    assert_nothing_is_left_behind(bucket, receipt)
    assert receipt["rows_resumed"] == 0
    assert traced_rows(tmp_path) <= ROWS * 9 // 10 + TRIED_ROWS


def test_a_server_that_stays_away_fails_the_run_in_words_and_the_next_run_resumes(
    server: Server, bucket: Bucket, start: Start, tmp_path: Path, chance: random.Random
) -> None:
    bucket.write_job(tmp_path)
    process = start(**server.environment, OVERNIGHT_STORAGE_PATIENCE="2")
    wait_until(moment("staging", chance, bucket, tmp_path), process)
    server.kill()
    failure = finish(process, code=1)
    server.start()
    assert failure["error_type"] == "StorageFailed"
    assert failure["stage"] in ("plan", "ingest", "preprocess", "write")  # wherever the last attempt met it
    assert "the storage did not recover: " in failure["error_message"]
    assert not [key for key in bucket.keys("out/") if not key.startswith("out/_overnight/")]
    done = traced_rows(tmp_path)
    receipt = finish(start(**server.environment))
    assert_as_undisturbed(receipt, bucket.published)
    assert receipt["rows_resumed"] >= 80
    assert traced_rows(tmp_path) - done <= (ROWS - receipt["rows_resumed"]) * 9 // 10 + TRIED_ROWS


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """What to put before a command so that `disk` is a disk of 2 MB for it, and where the test sees that disk."""
    (tmp_path / "disk").mkdir()
    holder = subprocess.Popen(["unshare", "--map-root-user", "--mount", "sleep", "600"], stderr=subprocess.DEVNULL)
    inside = ("nsenter", f"--target={holder.pid}", "--user", "--mount", "--preserve-credentials", f"--wd={tmp_path}")
    try:
        time.sleep(1)
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path / "disk")]
        if subprocess.run([*inside, *mount], check=False, capture_output=True).returncode:
            pytest.skip("this machine lets nobody mount a file system of his own")
        yield inside, Path(f"/proc/{holder.pid}/root{tmp_path}/disk")
    finally:
        holder.kill()
        holder.wait()


def test_a_full_disk_publishes_nothing_says_what_to_do_and_costs_no_finished_work_once_there_is_space(
    small_disk: tuple[tuple[str, ...], Path], start: Start, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name, content in inputs().items():
        (tmp_path / "in" / name).write_bytes(content)
    before, disk = small_disk
    (disk / "filler").write_bytes(b"x" * 1_990_000)
    write_job(tmp_path, "in", "disk/out")
    failure = finish(start(before=before), code=1)
    assert (failure["stage"], failure["error_type"]) == ("write", "StorageRefused")
    assert re.search(
        r"cannot write /.*/disk/out/_overnight/.*: no space left \([\d,]+ bytes free in /.*/disk/.*\)\. "
        r"Nothing was published\. Make room there, then run again",
        failure["error_message"],
    )
    assert not list((disk / "out").glob("*.parquet"))
    assert not list(disk.rglob("*.tmp"))
    staged = list(disk.rglob("*.part"))
    assert staged
    settled = sum(pq.read_metadata(part).num_rows for part in staged)
    done = traced_rows(tmp_path)
    (disk / "filler").unlink()
    receipt = finish(start(before=before))
    assert_as_undisturbed(receipt, lambda name: (disk / "out" / name).read_bytes())
    assert receipt["rows_resumed"] >= settled
    assert traced_rows(tmp_path) - done <= (ROWS - receipt["rows_resumed"]) * 9 // 10 + TRIED_ROWS
