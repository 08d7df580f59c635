"""Processes that die in the middle of a run: the next takes up what was staged, and the table is as if undisturbed."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from tests.chaos.conftest import (
    ROWS,
    TRIED_TWICE,
    assert_exact,
    assert_resumed,
    forked_processes,
    parts,
    ray_processes,
    settled_rows,
    task_runs,
    wait_for_parts,
)
from tests.chaos.runs import Start, finish, started_runs, traced_rows, write_model
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos


def test_a_killed_flow_is_taken_up_where_its_staged_parts_end(start: Start, job_folder: Path, prefect_api: str) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    staged = 0
    for _ in range(2):
        process = start()
        wait_for_parts(process, job_folder, staged + chance.randint(2, 5))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        time.sleep(3)  # Ray's processes notice that their driver is gone
        staged = len(parts(job_folder))
    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    receipt = finish(start())
    assert_exact(receipt, job_folder)
    assert_resumed(receipt, job_folder, settled, traced)
    runs = ask(prefect_api, "/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 3})
    assert [run["state_type"] for run in runs] == ["COMPLETED", "CRASHED", "CRASHED"]
    assert "RUNNING" not in {state for run in runs for state in task_runs(prefect_api, run["id"]).values()}


@pytest.mark.parametrize("title", ["write", "MapWorker"])
def test_a_killed_worker_costs_no_row_and_no_run(start: Start, job_folder: Path, prefect_api: str, title: str) -> None:
    process = start()
    wait_for_parts(process, job_folder, random.randint(2, 5))
    os.kill(ray_processes(title, job_folder / "trace")[0], signal.SIGKILL)
    receipt = finish(process)
    assert_exact(receipt, job_folder)
    if title == "write":
        assert receipt["rows_resumed"] > 0
        newest = ask(prefect_api, "/task_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 12})
        assert "CRASHED" in [run["state_type"] for run in newest]


SLOW_SIGHT = """
import time

import torch


def grey(batch):
    time.sleep(0.03 * len(batch["image"]))
    return {"grey": batch["image"][:, 0, 0, 0]}


class Grey(torch.nn.Module):
    def forward(self, image):
        return grey({"image": image})["grey"]
"""
SIGHTS = {
    "python": {"kind": "python", "target": "slow_sight:grey"},
    "torch": {"kind": "torch", "module": "slow_sight:Grey", "columns": ["image"], "outputs": ["grey"]},
}


@pytest.mark.parametrize(
    ("kind", "victims"),
    [
        ("python", partial(ray_processes, "MapWorker(MapBatches(PreparingWorker))")),
        ("torch", partial(ray_processes, "MapWorker(MapBatches(ForkedPreparingWorker))")),
        ("torch", forked_processes),
    ],
)
def test_a_killed_worker_that_reads_its_own_files_costs_no_row(
    prefect_api: str, tmp_path: Path, kind: str, victims: Callable[[Path], list[int]]
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(600):
        Image.new("RGB", (16, 16), (number % 250,) * 3).save(tmp_path / f"in/{number:03d}.png")
    (tmp_path / "in/300.png").write_bytes(b"no picture")
    (tmp_path / "slow_sight.py").write_text(SLOW_SIGHT)
    job = {
        "name": "sight",
        "source": {"kind": "images", "path": "in"},
        "preprocess": [{"kind": "resize_image", "size": 8}],
        "inference": [SIGHTS[kind] | {"batch_size": 10}],
        "sink": {"kind": "parquet", "path": "out", "rows_per_part": 40},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    with started_runs(tmp_path, prefect_api) as start:
        process = start()
        wait_for_parts(process, tmp_path, 2)
        os.kill(victims(tmp_path / "trace")[0], signal.SIGKILL)
        receipt = finish(process)
    found = [row for file in receipt["files"] for row in pq.read_table(tmp_path / "out" / file).to_pylist()]
    wanted = [(f"{number:03d}.png", number % 250) for number in range(600) if number != 300]
    assert sorted((row["row_id"], row["grey"]) for row in found) == wanted
    assert receipt["rows_quarantined"] == 1
    assert [incident["stage"] for incident in receipt["incidents"]], "the receipt says that a worker died"


SLOW_STEP = """
import time


def slowly(batch):
    time.sleep(0.004 * len(batch["x"]))
    return {"half": batch["x"] / 2}
"""
MODEL_WORKERS = {"apart": "MapWorker(MapBatches(Worker))", "beside": "MapWorker(MapBatches(PreparingWorker))"}
KILLS = 5  # in each of the two ways
UNDER_WAY = 120  # rows that are with the model, or behind it and not in a part yet, when something dies


@pytest.mark.parametrize("prepare", MODEL_WORKERS)
def test_a_series_of_kills_at_random_moments_costs_no_row(start: Start, job_folder: Path, prepare: str) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    (job_folder / "slow_step.py").write_text(SLOW_STEP)
    job = yaml.safe_load((job_folder / "job.yaml").read_text())
    job["preprocess"].append({"kind": "python", "target": "slow_step:slowly"})
    job["inference"][0]["prepare"] = prepare
    (job_folder / "job.yaml").write_text(yaml.safe_dump(job | {"max_attempts": KILLS + 1}))
    worker = MODEL_WORKERS[prepare]
    titles = [*(["run_steps"] if prepare == "apart" else []), worker, "ray::write", "the flow"]
    process, killed, deadline = start(), dict.fromkeys(titles, 0), time.monotonic() + 150
    while sum(killed.values()) < KILLS and len(parts(job_folder)) < ROWS // 40 and time.monotonic() < deadline:
        time.sleep(chance.uniform(0.2, 1.5))
        assert process.poll() is None, process.communicate()
        there = {title: ray_processes(title, job_folder / "trace") for title in titles} | {"the flow": [process.pid]}
        if not (there[worker] and parts(job_folder)):
            continue  # the stream has not begun
        title = chance.choice([title for title in titles if there[title]])
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(there[title]), signal.SIGKILL)
            killed[title] += 1
        if title == "the flow":
            process.communicate()
            process = start()
    print(f"killed {killed}")
    assert_exact(finish(process), job_folder)
    assert sum(killed.values()) >= 3
    assert traced_rows(job_folder) <= ROWS * 9 // 10 + sum(killed.values()) * (UNDER_WAY + TRIED_TWICE)


MANY_ROWS = 300
MANY = """
def spread(batch):
    if not all(n % 50 for n in batch["n"]):
        raise ValueError("one that is no good")
    return {"x": [[100 * n + place for place in range(n % 5)] for n in batch["n"]]}
"""


@pytest.mark.parametrize("prepare", MODEL_WORKERS)
def test_a_killed_run_publishes_all_rows_made_of_one_and_none_twice(
    prefect_api: str, tmp_path: Path, prepare: str
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"n": range(MANY_ROWS)}), tmp_path / "in/a.parquet", row_group_size=40)
    (tmp_path / "many.py").write_text(MANY)
    write_model(tmp_path)
    job = {
        "name": "many",
        "source": {"kind": "parquet", "path": "in"},
        "preprocess": [{"kind": "python", "target": "many:spread", "explode": ["x"]}],
        "inference": [{"kind": "python", "target": "slow_model:Slow", "batch_size": 7, "prepare": prepare}],
        "checks": {"max_quarantined": 0.1},
        "sink": {"kind": "parquet", "path": "out", "rows_per_part": 20},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    with started_runs(tmp_path, prefect_api) as start:
        process = start(SECONDS_PER_ROW="0.03")
        wait_for_parts(process, tmp_path, random.randint(2, 5))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        time.sleep(3)
        receipt = finish(start())
    good = [n for n in range(MANY_ROWS) if n % 50]
    wanted = [(f"a.parquet#{n}.{place}", 2 * (100 * n + place)) for n in good for place in range(n % 5)]
    found = [row for file in receipt["files"] for row in pq.read_table(tmp_path / "out" / file).to_pylist()]
    assert sorted((row["row_id"], row["twice"]) for row in found) == sorted(wanted)
    counts = {name: receipt[f"rows_{name}"] for name in ("in", "written", "out", "filtered", "quarantined")}
    filtered = sum(n % 5 == 0 for n in good)
    written = len(good) - filtered
    assert counts == {"in": 300, "written": written, "out": len(wanted), "filtered": filtered, "quarantined": 6}
    assert 40 <= receipt["rows_resumed"] < MANY_ROWS
