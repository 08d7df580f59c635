"""Runs that take GPUs share the slots of one limit, and give them back however they end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from prefect import flow

from overnight.flows.runs.gpu_slots import LIMIT, gpus_held
from tests.prefect_api import ask

ROOT = Path(__file__).parents[3]
Hold = Callable[[int], subprocess.Popen[str]]
HOLDER = """
import signal
import sys
from prefect import flow
from overnight.flows.runs.gpu_slots import gpus_held

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests may ignore it

@flow
def hold():
    with gpus_held(int(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.read()

hold()
"""
RUN = """
import json
import sys
import ray
from overnight.flows.batch_inference import batch_inference
from tests.prefect_api import ask

api = sys.argv[1]
ray.init("local", num_cpus=2, num_gpus=3, include_dashboard=False, log_to_driver=False, namespace="prefect")
try:
    batch_inference(job="waiting.yaml")
except Exception as error:
    failure = str(error)
ask(api, "/v2/concurrency_limits/overnight-gpu", {"limit": 3}, "PATCH")
print(json.dumps([failure, batch_inference(job="job.yaml")]))
"""
MODEL = """
import json
import os
import urllib.request


def slots_in_use(batch):
    with urllib.request.urlopen(os.environ["PREFECT_API_URL"] + "/v2/concurrency_limits/overnight-gpu") as answer:
        held = json.load(answer)["active_slots"]
    return {"held": [held] * len(batch["x"])}
"""


@pytest.fixture
def limit(prefect_api: str) -> Iterator[Callable[[int], None]]:
    """Makes the limit, of a size."""
    yield lambda size: ask(prefect_api, "/v2/concurrency_limits/", {"name": LIMIT, "limit": size})
    ask(prefect_api, f"/v2/concurrency_limits/{LIMIT}", method="DELETE")


@pytest.fixture
def hold(prefect_api: str) -> Iterator[Hold]:
    """Starts a process whose flow run takes so many GPUs, prints `held`, and holds them until its input ends."""
    started = []

    def start(gpus: int) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", HOLDER, str(gpus)]
        environment = {**os.environ, "PREFECT_API_URL": prefect_api}
        environment.pop("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", None)  # importing the command line turns the log off
        started.append(
            subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def await_line(process: subprocess.Popen[str], words: str) -> None:
    """Wait until the process has printed a line with these words. Fail if it prints `held` before, or ends."""
    assert process.stdout is not None
    lines: list[str] = []
    while words not in (lines or [""])[-1]:
        lines.append(process.stdout.readline())
        ends_the_wait = "" if words == "held" else "held\n"
        assert lines[-1] not in ("", ends_the_wait), f"no {words!r} in: {''.join(lines)}"


def in_use(api: str) -> int:
    return int(ask(api, f"/v2/concurrency_limits/{LIMIT}")["active_slots"])


@pytest.mark.slow
def test_slots_are_held_while_a_run_takes_gpus_and_given_back_when_it_ends_or_fails(
    prefect_api: str, limit: Callable[[int], None]
) -> None:
    @flow
    def run(gpus: int, error: bool = False) -> int:
        with gpus_held(gpus):
            if error:
                raise ValueError("on purpose")
            return in_use(prefect_api)

    limit(4)
    assert [run(3), run(9), run(0)] == [3, 4, 0]  # more than there are: all
    with pytest.raises(ValueError, match="on purpose"):
        run(3, error=True)
    assert in_use(prefect_api) == 0


def test_where_there_is_no_limit_nothing_is_limited(prefect_api: str, capsys: pytest.CaptureFixture[str]) -> None:
    @flow
    def run() -> str:
        with gpus_held(8):
            return "ran"

    assert run() == "ran"
    assert LIMIT not in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_waits_for_slots_and_gets_those_of_a_process_that_died(
    prefect_api: str, limit: Callable[[int], None], hold: Hold
) -> None:
    limit(2)
    first = hold(2)
    await_line(first, "held")
    second = hold(1)
    await_line(second, "waiting for 1 of the 2 slots")
    first.kill()
    await_line(second, "held")  # when Prefect's lease on the slots ends, after a minute and more
    assert in_use(prefect_api) == 1
    second.communicate("", timeout=60)
    assert in_use(prefect_api) == 0


@pytest.mark.slow
def test_a_run_that_is_interrupted_holds_nothing_and_waits_no_longer(
    prefect_api: str, limit: Callable[[int], None], hold: Hold
) -> None:
    limit(1)
    holding = hold(1)
    await_line(holding, "held")
    waiting = hold(1)
    await_line(waiting, "waiting for 1 of the 1 slots")
    for interrupted, left in ((waiting, 1), (holding, 0)):
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.wait(30) != 0
        assert in_use(prefect_api) == left


@pytest.mark.slow
def test_a_job_holds_as_many_slots_as_its_plan_takes_gpus_and_none_while_it_waits_for_its_inputs(
    prefect_api: str, limit: Callable[[int], None], tmp_path: Path
) -> None:
    """There are no slots at first, and three when the job that waits in vain for a file has failed."""
    limit(0)
    write_job(tmp_path / "waiting.yaml", wait_for={"file": "_SUCCESS", "timeout_minutes": 0.05})
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "in/a.parquet")
    (tmp_path / "asking_model.py").write_text(MODEL)
    write_job(tmp_path / "job.yaml")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PREFECT_API_URL": prefect_api, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": path}
    command = [sys.executable, "-c", RUN, prefect_api]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    failure, receipt = json.loads(done.stdout.splitlines()[-1])
    assert "_SUCCESS" in failure
    [file] = receipt["files"]
    assert pq.read_table(tmp_path / "out" / file)["held"].to_pylist() == [2, 2]
    assert in_use(prefect_api) == 0


def write_job(path: Path, **source: Any) -> None:
    """Write a job of two GPUs."""
    job = {
        "name": path.stem,
        "source": {"kind": "parquet", "path": "in", **source},
        "inference": [{"kind": "python", "target": "asking_model:slots_in_use", "num_gpus": 1, "workers": 2}],
        "sink": {"kind": "parquet", "path": "out"},
    }
    path.write_text(yaml.safe_dump(job))
