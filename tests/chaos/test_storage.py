"""An S3 server that dies and comes back costs only time."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.chaos.conftest import PER_PART, ROWS, TRIED_TWICE, assert_rows, write_job
from tests.chaos.moments import Moments
from tests.chaos.runs import Start, answers, finish, free_ports, set_pace, traced_rows, wait_for, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
BUCKET = "bucket"


class Server:
    """An S3 server in a process of its own that keeps its data; it answers on the same port whenever it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, [self._port] = folder, free_ports(1)
        url, keys = f"http://127.0.0.1:{self._port}", {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
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
        wait_for("the S3 server", lambda: answers("127.0.0.1", self._port), 60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def parts(self) -> list[str]:
        return [key for key in self.keys("out/_overnight/") if key.endswith(".part")]

    def read(self, file: str) -> bytes:
        return bytes(self.client.get_object(Bucket=BUCKET, Key=f"out/{file}")["Body"].read())


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """The job of all runs, which reads and publishes on the server; its model is slow between one file and the next."""
    source, sink = ({"kind": "parquet", "path": f"s3://{BUCKET}/{name}"} for name in ("in", "out"))
    return write_job(tmp_path, source=source, sink=sink | {"rows_per_part": PER_PART, "target_file_size": 4000})


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, job_folder: Path) -> Iterator[Server]:
    """A server that has the job's files."""
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        server.start()
        server.client.create_bucket(Bucket=BUCKET)
        for file in (job_folder / "in").iterdir():
            server.client.put_object(Bucket=BUCKET, Key=f"in/{file.name}", Body=file.read_bytes())
        yield server
    finally:
        server.kill()


def at_work(doing: str, moments: Moments, server: Server, folder: Path) -> Callable[[], bool]:
    """Return a function that tells whether the run is in the middle of this, further on than it is now."""
    count, traced, staged = moments.number(2, 6), traced_rows(folder), len(server.parts())
    happened: dict[str, Callable[[], bool]] = {
        "read": lambda: traced_rows(folder) >= traced + 20 * count,
        "staging": lambda: len(server.parts()) >= staged + count // 2,
        "merging": lambda: len(server.keys("out/_publishing-")) >= count,
        "publish": lambda: len(server.keys("out/part-")) >= count,
    }
    return happened[doing]


def test_a_server_that_is_killed_and_comes_back_costs_only_time(
    server: Server, start: Start, job_folder: Path, moments: Moments
) -> None:
    set_pace(job_folder, 0.02)
    process, attempts = start(**server.environment), set[str]()
    for doing in (moments.one_of(["read", "staging"]), moments.one_of(["merging", "publish"])):
        wait_until(at_work(doing, moments, server, job_folder), process)
        attempts |= {key.rpartition("/")[2].rpartition("-")[0] for key in server.parts()}
        moments.record(f"the store killed while the run is at {doing}", len(server.parts()))
        server.kill()
        time.sleep(moments.seconds(1, 3))
        assert process.poll() is None
        server.start()
    receipt: dict[str, Any] = finish(process)
    assert_rows(receipt, server.read)
    published = [key for key in server.keys("out/") if not key.startswith("out/_overnight/")]
    assert sorted(published) == sorted(f"out/{file}" for file in receipt["files"])
    assert attempts == {receipt["attempt"]}
    assert traced_rows(job_folder) <= ROWS * 9 // 10 + TRIED_TWICE  # nothing began again
