"""An S3 server that dies and comes back; a disk that is full: no row lost, none doubled."""

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.chaos.moments import Moments
from tests.chaos.runs import Start, finish, free_ports, slow_model, traced_rows, wait_for, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

ROWS, PER_FILE = 600, 10
TRIED_ROWS = 150


class Server:
    """An S3 server in a process of its own that keeps its data; it answers on the same port whenever it runs."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        url, keys = f"http://127.0.0.1:{port}", {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self.environment = {name.upper(): value for name, value in keys.items()}
        self.environment |= {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
        self.client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)

    def start(self) -> None:
        data = {"S3_PERSIST": "1", "S3_DATA_DIR": str(self._folder / "s3"), "STATE_DIR": str(self._folder / "state")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ministack"],
            env={**os.environ, **data, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(self._port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for("the S3 server", self.answers, 60)

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Bucket:
    """A bucket of a test with 60 small Parquet files below `in/`."""

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

    def parts(self) -> list[str]:
        return [key for key in self.keys("out/_overnight/") if key.endswith(".part")]

    def published(self, file: str) -> bytes:
        return bytes(self.server.client.get_object(Bucket=self.name, Key=f"out/{file}")["Body"].read())


def inputs() -> dict[str, bytes]:
    files = {}
    for i in range(ROWS // PER_FILE):
        buffer = io.BytesIO()
        pq.write_table(pa.table({"x": range(i * PER_FILE, (i + 1) * PER_FILE)}), buffer)
        files[f"{i:03d}.parquet"] = buffer.getvalue()
    return files


@pytest.fixture
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """The bucket of a server of the test's own."""
    [port] = free_ports(1)
    server = Server(tmp_path_factory.mktemp("server"), port)
    try:
        server.start()
        bucket = Bucket(server, "bucket")
        bucket.fill()
        yield bucket
    finally:
        server.kill()


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """Where `start` runs `job.yaml`."""
    slow_model(tmp_path)
    return tmp_path


def write_job(folder: Path, source: str, sink: str) -> None:
    """The step that is slow runs between one file's read and the next."""
    job = {
        "name": "slow",
        "retries": {"delay_seconds": 1},
        "source": {"kind": "parquet", "path": source},
        "preprocess": [
            {"kind": "filter_rows", "expression": "x % 10 != 3"},
            slow_model(folder, 0.02),
        ],
        "sink": {"kind": "parquet", "path": sink, "rows_per_part": 40, "target_file_size": 4000},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


def assert_as_undisturbed(receipt: dict[str, Any], read: Callable[[str], bytes]) -> None:
    rows = [row for file in receipt["files"] for row in pq.read_table(io.BytesIO(read(file))).to_pylist()]
    assert sorted((row["x"], row["twice"], row["row_id"]) for row in rows) == sorted(
        (x, 2 * x, f"{x // PER_FILE:03d}.parquet#{x % PER_FILE}") for x in range(ROWS) if x % 10 != 3
    )
    assert (receipt["rows_in"], receipt["rows_filtered"], receipt["rows_quarantined"]) == (ROWS, ROWS // 10, 0)


def at_work(doing: str, moments: Moments, bucket: Bucket, folder: Path) -> Callable[[], bool]:
    """Return a function that tells whether the run is in the middle of this, further on than it is now."""
    count, traced, staged = moments.number(2, 6), traced_rows(folder), len(bucket.parts())
    happened: dict[str, Callable[[], bool]] = {
        "read": lambda: traced_rows(folder) >= traced + 20 * count,
        "staging": lambda: len(bucket.parts()) >= staged + count // 2,
        "merging": lambda: len(bucket.keys("out/_publishing-")) >= count,
        "publish": lambda: len(bucket.keys("out/part-")) >= count,
    }
    return happened[doing]


def assert_nothing_is_left_behind(bucket: Bucket, receipt: dict[str, Any]) -> None:
    listed = [key for key in bucket.keys("out/") if not key.startswith("out/_overnight/")]
    assert sorted(listed) == sorted(f"out/{file}" for file in receipt["files"])


def test_a_server_that_is_killed_and_comes_back_costs_only_time(
    bucket: Bucket, start: Start, tmp_path: Path, moments: Moments
) -> None:
    bucket.write_job(tmp_path)
    process = start(**bucket.server.environment)
    for doing in (moments.one_of(["read", "staging"]), moments.one_of(["merging", "publish"])):
        wait_until(at_work(doing, moments, bucket, tmp_path), process)
        attempts = {key.rpartition("/")[2].rpartition("-")[0] for key in bucket.parts()}
        moments.record(f"the store killed while the run is at {doing}", len(bucket.parts()))
        bucket.server.kill()
        time.sleep(moments.seconds(1, 3))
        assert process.poll() is None
        bucket.server.start()
    receipt = finish(process)
    assert_as_undisturbed(receipt, bucket.published)
    assert_nothing_is_left_behind(bucket, receipt)
    assert attempts == {receipt["attempt"]}
    assert traced_rows(tmp_path) <= ROWS * 9 // 10 + TRIED_ROWS  # nothing began again


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """What to put before a command so that `disk` is a disk of 2 MB for it, and where the test sees that disk."""
    (tmp_path / "disk").mkdir()
    holder = subprocess.Popen(["unshare", "--map-root-user", "--mount", "sleep", "600"], stderr=subprocess.DEVNULL)
    inside = ("nsenter", f"--target={holder.pid}", "--user", "--mount", "--preserve-credentials", f"--wd={tmp_path}")
    try:
        command = Path(f"/proc/{holder.pid}/cmdline")  # it sleeps once its namespace is made
        wait_for("the namespace", lambda: holder.poll() is not None or command.read_text().startswith("sleep"), 20)
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path / "disk")]
        if subprocess.run([*inside, *mount], check=False, capture_output=True).returncode:
            pytest.skip("this machine refuses mounts in a user namespace")
        yield inside, Path(f"/proc/{holder.pid}/root{tmp_path}/disk")
    finally:
        holder.kill()
        holder.wait()


def test_a_full_disk_publishes_nothing_and_costs_no_finished_work_once_there_is_space(
    small_disk: tuple[tuple[str, ...], Path], start: Start, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name, content in inputs().items():
        (tmp_path / "in" / name).write_bytes(content)
    before, disk = small_disk
    (disk / "filler").write_bytes(b"x" * 1_990_000)
    write_job(tmp_path, "in", "disk/out")
    own = {"OVERNIGHT_FORK_SERVER": ""}  # the tests' fork server does not see that disk
    failure = finish(start(before=before, **own), code=1)
    assert (failure["stage"], failure["error_type"]) == ("write", "StorageRefused")
    assert "/disk/out/_overnight/" in failure["error_message"]
    assert "no space left" in failure["error_message"]
    assert not list((disk / "out").glob("*.parquet"))
    assert not list(disk.rglob("*.tmp"))
    staged = list(disk.rglob("*.part"))
    assert staged
    settled = sum(pq.read_metadata(part).num_rows for part in staged)
    done = traced_rows(tmp_path)
    (disk / "filler").unlink()
    receipt = finish(start(before=before, **own))
    assert_as_undisturbed(receipt, lambda name: (disk / "out" / name).read_bytes())
    assert receipt["rows_resumed"] >= settled
    assert traced_rows(tmp_path) - done <= (ROWS - receipt["rows_resumed"]) * 9 // 10 + TRIED_ROWS
