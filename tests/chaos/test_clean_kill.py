"""`overnight clean` killed half-way: the next run resumes all the same, and the next clean finishes."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.flows.batch_inference import batch_inference
from overnight.flows.job.loading import load_job
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.tasks.errors import CheckFailed
from tests.chaos.moments import Moments

pytestmark = pytest.mark.chaos

GENERATIONS, FILES_EACH = 60, 40


def test_a_killed_clean_costs_no_staged_row(
    prefect_api: str, ray_session: None, tmp_path: Path, moments: Moments
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"x": range(50)}), tmp_path / "in/a.parquet")
    job = {"name": "cleaned", "source": {"kind": "parquet", "path": f"{tmp_path}/in"}}
    job |= {"sink": {"kind": "parquet", "path": f"{tmp_path}/out"}}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**job, "checks": {"min_rows": 1000}}))
    with pytest.raises(CheckFailed, match="min_rows"):
        batch_inference(job=str(path))
    generations = tmp_path / "out/_overnight/all/generations"
    (resumable,) = generations.iterdir()
    for i in range(GENERATIONS):  # older ones of the same settings, which nothing resumes any more
        old = generations / f"20200101T0000{i:02d}-aaaaaa-bbbbbb"
        shutil.copytree(resumable, old)
        for n in range(FILES_EACH):
            (old / "parts" / f"20200101T000000-aaaaaa-{n:06d}.part").write_bytes(b"x")

    path.write_text(yaml.safe_dump(job))
    command = [sys.executable, "-c", "from overnight.cli.main import main; main()", "clean", "job.yaml", "--yes"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        left = GENERATIONS + 1 - moments.number(1, GENERATIONS // 2)
        deadline = time.monotonic() + 120
        try:
            while len(list(generations.iterdir())) > left:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, "clean removes nothing"
        finally:
            process.send_signal(signal.SIGKILL)
        moments.record(f"clean killed with {left} of {GENERATIONS + 1} generations left")
    assert process.returncode == -signal.SIGKILL
    assert 1 < len(list(generations.iterdir())) <= left

    receipt = batch_inference(job=str(path))
    assert (receipt["generation"], receipt["rows_resumed"], receipt["rows_out"]) == (resumable.name, 50, 50)
    report = collect_garbage(load_job(path), dry_run=False)
    assert report["skipped"] == []
    assert [path.name for path in generations.iterdir()] == [resumable.name]
    assert collect_garbage(load_job(path))["removable"] == []
    assert pq.read_table(tmp_path / "out" / receipt["files"][0])["x"].to_pylist() == list(range(50))
