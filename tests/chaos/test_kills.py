"""Processes that die in the middle of a run: the next takes up what was staged, and the table is as if undisturbed."""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.state.lease import PartitionBusy
from tests.chaos.conftest import newest_flow_run, parts, receipt_of, task_runs, wait_for_parts
from tests.chaos.moments import Moments
from tests.chaos.runs import (
    Process,
    Start,
    finish,
    forked_processes,
    in_background,
    kill,
    kill_flow,
    ray_processes,
    set_pace,
    slow_model,
    traced_rows,
    wait_for,
    wait_until,
)
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, published
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos

SOURCE_ROWS, PER_PART = 1200, 20
MANY = '''
import time
from pathlib import Path


class Spread:
    """n % 5 rows of one, and an error for every fiftieth; five times as slow as the model."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __call__(self, batch):
        for _ in batch["n"]:
            time.sleep(5 * float((self.folder / "pace").read_text()))
        if not all(n % 50 for n in batch["n"]):
            raise ValueError("one that is no good")
        return {"x": [[100 * n + place for place in range(n % 5)] for n in batch["n"]]}
'''
GOOD = [n for n in range(SOURCE_ROWS) if n % 50 and n % 10 != 9]  # 9 repeats the page of 8
WRITTEN = [
    (f"a.parquet#{n}.{place}", 2 * x, x)
    for n in GOOD
    for place, x in enumerate(range(100 * n, 100 * n + n % 5))
    if x % 7  # filtered behind the model
]
FIRST = {x % 20_000: row_id for row_id, _, x in reversed(WRITTEN)}
WANTED = [row for row in WRITTEN if FIRST[row[2] % 20_000] == row[0]]
STEPS, STREAM = "run_steps", "ray::infer"
VICTIMS = {
    "separate": [STEPS, "MapWorker(MapBatches(WorkerProcess))", STREAM],
    "colocated": ["MapWorker(MapBatches(PreparingWorkerProcess))", STREAM],
}
UNDER_WAY = 240  # rows that are with the model, or behind it and in no part yet, when something dies
TRIED = 64  # rows that are made of those which are tried before the stream


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """A job whose steps are slower than its model, and make none to four rows of one; steps behind it filter some.

    It drops duplicates before the model and behind it.
    """
    (tmp_path / "in").mkdir()
    pages = [n - (n % 10 == 9) for n in range(SOURCE_ROWS)]
    table = pa.table({"n": range(SOURCE_ROWS), "page": pages})
    pq.write_table(table, tmp_path / "in/a.parquet", row_group_size=40)
    (WORKER_PATH / "many.py").write_text(MANY)
    job = {
        "name": "many",
        "retries": {"delay_seconds": 1},
        "source": {"kind": "parquet", "path": str(tmp_path / "in")},
        "preprocess": [
            {"kind": "deduplicate", "columns": ["page"]},
            {"kind": "python", "target": "many:Spread", "kwargs": {"folder": str(tmp_path)}, "explode": ["x"]},
        ],
        "inference": [
            slow_model(tmp_path) | {"batch_size": 7},
            {"kind": "derive_columns", "columns": {"half": "twice // 2", "rest": "half % 20000"}},
            {"kind": "filter_rows", "expression": "half % 7 <> 0"},
            {"kind": "deduplicate", "columns": ["rest"]},
        ],
        "checks": {"max_quarantined": 0.1},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": PER_PART},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path


def kill_one(title: str, process: Process, folder: Path, moments: Moments) -> None:
    """Kill one of the run's processes with this title, at a drawn moment."""
    wait_for_parts(process, folder, len(parts(folder)) + moments.number(1, 3))
    time.sleep(moments.seconds(0, 0.3))

    def killed() -> bool:
        found = ray_processes(title, process)
        return bool(found) and kill(found[0])

    wait_until(killed, process)
    moments.record(f"{title} killed", len(parts(folder)))


def staged_sources(folder: Path) -> set[str]:
    """Return the source rows of which staged parts hold rows."""
    ids = [row_id for part in parts(folder) for row_id in pq.read_table(part, columns=["row_id"])["row_id"].to_pylist()]
    return {row_id.partition(".parquet#")[2].partition(".")[0] for row_id in ids}


def staged_rows(folder: Path) -> int:
    """Return how many rows the model saw of the source rows that are staged; a few were filtered behind it."""
    return sum(int(n) % 5 for n in staged_sources(folder))


def unchanged(folder: Path, last: list[int]) -> bool:
    """Return True if the models have seen no row for a second; `last` has the count of the last call."""
    time.sleep(1)
    last.append(traced_rows(folder))
    return last[-1] == last[-2]


def assert_published(receipt: dict[str, Any], folder: Path) -> None:
    """Assert that readers find exactly what an undisturbed run gives: all rows made of one, and none twice."""
    found = published(receipt, folder / "out").to_pylist()
    assert sorted((row["row_id"], row["twice"], row["half"]) for row in found) == sorted(WANTED)
    counts = {name: receipt[f"rows_{name}"] for name in ("in", "written", "out", "filtered", "quarantined")}
    written = len({row_id.partition(".parquet#")[2].partition(".")[0] for row_id, *_ in WANTED})
    quarantined = SOURCE_ROWS // 50
    assert counts == {
        **{"in": SOURCE_ROWS, "written": written, "out": len(WANTED)},
        **{"filtered": SOURCE_ROWS - written - quarantined, "quarantined": quarantined},
    }
    assert receipt["rows_duplicate"] == SOURCE_ROWS // 10 + len(WRITTEN) - len(WANTED)


def kill_each_process(start: Start, folder: Path, api: str, moments: Moments) -> str:
    """Kill each kind of process of a run, and then the run; return its flow run.

    The run prepares its rows apart from the model or beside it, as it is drawn.
    """
    placement = moments.one_of(list(VICTIMS))
    process = start("run", "job.yaml", "--json", "--set", f"inference.0.placement={placement}")
    wait_for_parts(process, folder, 1)
    flow_run = str(newest_flow_run(api)["id"])
    for title in moments.in_order(VICTIMS[placement]):
        kill_one(title, process, folder, moments)
        if title == STREAM:
            wait_for("its task run as Crashed", lambda: "CRASHED" in task_runs(api, flow_run).values())
    wait_for_parts(process, folder, len(parts(folder)) + moments.number(1, 3))
    moments.record("the flow killed", len(parts(folder)))
    kill_flow(process)
    assert traced_rows(folder) - staged_rows(folder) <= (len(VICTIMS[placement]) + 1) * (UNDER_WAY + TRIED)
    [entry] = read_ledger(load_job(folder / "job.yaml"))
    assert (entry.status, entry.receipt) == ("failed", None)
    assert "the process of attempt" in entry.why[0]
    return flow_run


def test_a_partition_whose_runs_are_killed_and_frozen_is_published_as_if_undisturbed(
    start: Start, job_folder: Path, prefect_api: str, moments: Moments, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two runs at the same time one works. A run that was frozen loses its lease, and cannot publish afterwards."""
    flow_runs = [kill_each_process(start, job_folder, prefect_api, moments)]

    zombie = start()
    wait_for_parts(zombie, job_folder, len(parts(job_folder)) + moments.number(1, 3))
    flow_runs.append(newest_flow_run(prefect_api)["id"])
    [writer] = ray_processes(STREAM, zombie)
    os.kill(writer, signal.SIGSTOP)  # the stream waits, the run lives on
    with pytest.raises(PartitionBusy):
        run_job(job_folder / "job.yaml")
    assert not (job_folder / "out/_overnight/all/failure.json").exists()
    moments.record("the run frozen", len(parts(job_folder)))
    os.kill(zombie.pid, signal.SIGSTOP)

    set_pace(job_folder, 0)
    wait_for("the frozen run's models to end the blocks at hand", partial(unchanged, job_folder, [0]))
    sources, traced = staged_sources(job_folder), traced_rows(job_folder)
    monkeypatch.setattr("overnight.tasks.state.lease.EXPIRY_SECONDS", 10)
    receipt = run_job(job_folder / "job.yaml")
    flow_runs.append(newest_flow_run(prefect_api)["id"])
    assert_published(receipt, job_folder)
    assert len(sources) <= receipt["rows_resumed"] < SOURCE_ROWS
    assert traced_rows(job_folder) - traced <= sum(n % 5 for n in GOOD if str(n) not in sources) + TRIED

    for pid in (zombie.pid, writer):
        os.kill(pid, signal.SIGCONT)
    assert finish(zombie, code=1)["error_type"] == "LeaseLost"
    assert_published(receipt, job_folder)
    assert receipt_of(job_folder) == receipt
    states = [ask(prefect_api, f"/flow_runs/{flow_run}")["state_type"] for flow_run in flow_runs]
    assert (states[0], states[2]) == ("CRASHED", "COMPLETED"), states
    for flow_run in flow_runs:
        wait_for("its task runs to end", lambda run=flow_run: "RUNNING" not in task_runs(prefect_api, run).values(), 60)


@pytest.mark.nightly
@pytest.mark.parametrize("series", range(10))
def test_ten_series_of_kills_at_other_moments_cost_no_row(series: int, request: pytest.FixtureRequest) -> None:
    """What is drawn differs by the name of the test."""
    names = ("start", "job_folder", "prefect_api", "moments", "run_job", "monkeypatch")
    test = test_a_partition_whose_runs_are_killed_and_frozen_is_published_as_if_undisturbed
    test(*(request.getfixturevalue(name) for name in names))


SLOW_SIGHT = """
import time
from pathlib import Path

import torch


class Grey(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def forward(self, image):
        time.sleep(float((self.folder / "pace").read_text()) * len(image))
        return image[:, 0, 0, 0]
"""
IMAGES = 600


def at_work() -> set[int]:
    """Return the ids of the model's workers that have been made."""
    return set(ray_processes("MapWorker")) - set(ray_processes("__init__"))


def test_killed_workers_that_read_their_own_files_cost_no_row(
    run_job: RunJob, moments: Moments, tmp_path: Path
) -> None:
    """The worker dies, and then the process that it forked, or the other way round."""
    (tmp_path / "in").mkdir()
    for number in range(IMAGES):
        Image.new("RGB", (16, 16), (number % 250,) * 3).save(tmp_path / f"in/{number:03d}.png")
    (tmp_path / "in/300.png").write_bytes(b"no picture")
    (WORKER_PATH / "slow_sight.py").write_text(SLOW_SIGHT)
    set_pace(tmp_path, 0.1)  # until the kills
    model = {"kind": "torch", "module": "slow_sight:Grey", "kwargs": {"folder": str(tmp_path)}}
    job = {
        "name": "sight",
        "source": {"kind": "images", "path": str(tmp_path / "in")},
        "preprocess": [{"kind": "resize_image", "size": 8}],
        "inference": [model | {"columns": ["image"], "outputs": ["grey"], "batch_size": 10}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 40},
    }
    victims = {
        "worker": lambda: ray_processes("MapWorker(MapBatches(PreparingWorkerProcess))"),
        "forked process": forked_processes,  # only the newest are workers
    }
    with in_background(run_job, job) as running:
        staged, known = 2, set[int]()
        for name in moments.in_order(list(victims)):
            wait_for("staged parts", lambda n=staged: running.done() or len(parts(tmp_path)) >= n, 240)
            wait_for("a worker that takes rows", lambda old=known: running.done() or at_work() - old)
            assert not running.done(), running.result()
            known = at_work()
            assert kill(victims[name]()[-1])
            staged = len(parts(tmp_path))
            moments.record(f"the {name} killed", staged)
            staged += moments.number(1, 2)
        set_pace(tmp_path, 0)
        receipt = running.result(200)
    found = published(receipt, tmp_path / "out").to_pylist()
    wanted = [(f"{number:03d}.png", number % 250) for number in range(IMAGES) if number != 300]
    assert sorted((row["row_id"], row["grey"]) for row in found) == wanted
    assert receipt["rows_quarantined"] == 1
    times = sum(incident["times"] for incident in receipt["incidents"])
    assert times >= len(victims), receipt["incidents"]
