"""Small jobs to run on the session's Prefect server and Ray."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from overnight.tasks.workers.fork_server import ADDRESS
from tests import warm_commands
from tests.warm_commands import Done

RunJob = Callable[..., dict[str, Any]]
Overnight = Callable[..., Done]
COMMANDS_ALONE = ("init", "validate", "status", "clean", "doctor", "show", "diff")  # need neither Ray nor a server


@pytest.fixture
def run_job(prefect_api: str, ray_session: None, tmp_path: Path) -> RunJob:
    """Runs a job given as a file, or as a dict, whose file lies in the test's own folder; the receipt."""
    from overnight.flows.batch_inference import batch_inference

    def run(job: dict[str, Any] | Path, partition: str = "", **parameters: Any) -> dict[str, Any]:
        path = job if isinstance(job, Path) else tmp_path / f"{job.get('name', 'job')}.yaml"
        if isinstance(job, dict):
            path.write_text(yaml.safe_dump(job))
        return batch_inference(partition, job=str(path), **parameters)

    return run


@pytest.fixture
def overnight(request: pytest.FixtureRequest, tmp_path: Path) -> Overnight:
    """Run `overnight ARGUMENTS` in the test's folder, in this process and on the session's Ray and servers."""

    def run(*arguments: str, folder: Path = tmp_path, stdin: int | None = None) -> Done:
        if arguments[0] not in COMMANDS_ALONE:
            request.getfixturevalue("ray_session")
        return warm_commands.run("overnight", arguments, folder, stdin)

    return run


@pytest.fixture
def overnight_process(prefect_api: str, tmp_path: Path) -> Overnight:
    """Run `overnight ARGUMENTS` in the test's folder as a process, with a Ray of its own."""

    def run(*arguments: str) -> Done:
        inherited = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", ADDRESS)}
        command = [sys.executable, "-c", "from overnight.cli.main import main; main(prog_name='overnight')", *arguments]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(command, cwd=tmp_path, env=inherited, timeout=240, check=False, **streams)

    return run


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Twelve small pictures below `cat/` and `dog/`, each of one colour of its own; `date=2026-01-02` is the folder."""
    folder = tmp_path / "in" / "date=2026-01-02"
    for i in range(12):
        place = folder / ("cat" if i % 2 else "dog") / f"{i:02d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 10, 3), i * 20, np.uint8)).save(place)
    return folder


def parquet(folder: Path) -> dict[str, str]:
    """A source of the Parquet files in the folder's `in`."""
    return {"kind": "parquet", "path": f"{folder}/in"}


def write_parquet(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def published(receipt: dict[str, Any], sink: Path) -> pa.Table:
    """What readers find, following the receipt; that a listing finds the same files is checked here too."""
    files = sorted(str(sink / file) for file in receipt["files"])
    listed = sorted(str(p) for p in sink.rglob("*.parquet") if "_overnight" not in p.parts)
    partition = f"/date={receipt['partition']}/"
    assert files == [p for p in listed if partition in p or receipt["partition"] == "all"]
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def quarantine(sink: Path, partition: str) -> list[dict[str, Any]]:
    """The quarantine table of a partition, as rows."""
    files = (sink / "_overnight" / partition / "quarantine").glob("*.parquet")
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def assert_quarantined(sink: Path, reasons: dict[str, str]) -> None:
    """These rows of the partition `all` and no others, each for a reason that its pattern is found in."""
    found = {row["row_id"]: row["error_message"] for row in quarantine(sink, "all")}
    assert found.keys() == reasons.keys()
    for row_id, reason in reasons.items():
        assert re.search(reason, found[row_id]), f"{row_id}: {found[row_id]}"


def assert_settled(receipt: dict[str, Any], written: int | None = None) -> None:
    """Every source row is accounted for exactly once."""
    written = receipt["rows_out"] if written is None else written
    assert receipt["rows_in"] == written + receipt["rows_filtered"] + receipt["rows_quarantined"]
