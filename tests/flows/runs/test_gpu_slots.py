"""Runs that take GPUs share the slots of one limit, and give them back however they end."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prefect import flow

from overnight.flows.runs.gpu_slots import LIMIT, gpus_held
from overnight.tasks.errors import InputError
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob
from tests.prefect_api import ask

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
MODEL = """
import base64
import json
import os
import urllib.request


class SlotsInUse:
    def __init__(self, api):
        login = base64.b64encode(os.environ["PREFECT_API_AUTH_STRING"].encode()).decode()
        address = api + "/v2/concurrency_limits/overnight-gpu"
        self.request = urllib.request.Request(address, headers={"authorization": "Basic " + login})

    def __call__(self, batch):
        with urllib.request.urlopen(self.request) as answer:
            held = json.load(answer)["active_slots"]
        return {"held": [held] * len(batch["id"])}
"""


@pytest.fixture
def limit(prefect_api: str) -> Iterator[Callable[[int], None]]:
    """Makes the limit, of a size."""
    yield lambda size: ask(prefect_api, "/v2/concurrency_limits/", {"name": LIMIT, "limit": size})
    ask(prefect_api, f"/v2/concurrency_limits/{LIMIT}", method="DELETE")


@pytest.fixture
def hold(prefect_api: str) -> Iterator[Hold]:
    """Starts a process whose flow run takes so many GPUs, prints `held`, and holds them until its input ends."""
    started: list[subprocess.Popen[str]] = []

    def start(gpus: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, str(gpus)]
        environment = {**os.environ, "PREFECT_API_URL": prefect_api}
        environment.pop("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", None)  # importing the command line turns the log off
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=environment, text=True, **streams))
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
def test_a_run_waits_for_slots_until_it_is_interrupted_or_gets_those_of_a_process_that_died(
    prefect_api: str, limit: Callable[[int], None], hold: Hold
) -> None:
    limit(2)
    first = hold(2)
    await_line(first, "held")
    second, third = hold(1), hold(1)
    for waiting in (second, third):
        await_line(waiting, "waiting for 1 of the 2 slots")
    second.send_signal(signal.SIGINT)
    assert second.wait(30) != 0
    assert in_use(prefect_api) == 2
    first.kill()
    await_line(third, "held")  # when Prefect's lease on the slots ends, after a minute and more
    assert in_use(prefect_api) == 1
    third.send_signal(signal.SIGINT)
    assert third.wait(30) != 0
    assert in_use(prefect_api) == 0


@pytest.mark.slow
def test_a_job_holds_as_many_slots_as_its_plan_takes_gpus_and_none_while_it_waits_for_its_inputs(
    prefect_api: str, limit: Callable[[int], None], run_job: RunJob, tmp_path: Path
) -> None:
    """There are no slots until the job that waits in vain for a file has failed."""
    (WORKER_PATH / "asking_model.py").write_text(MODEL)
    model = {"kind": "python", "target": "asking_model:SlotsInUse", "kwargs": {"api": prefect_api}}
    job = jobs.job(tmp_path, inference=[model | {"num_gpus": 1, "workers": 2}])
    day = "2026-01-02"
    jobs.write_days(tmp_path, [day])
    waiting = job | {"source": job["source"] | {"wait_for": {"file": "_SUCCESS", "timeout_minutes": 0.01}}}
    limit(0)
    with pytest.raises(InputError, match="_SUCCESS"):
        run_job(waiting, day)
    ask(prefect_api, f"/v2/concurrency_limits/{LIMIT}", {"limit": 3}, "PATCH")
    assert run_job(waiting, day, limit_rows=1)["limit_rows"] == 1  # a sample takes what is there
    published = run_job(job, day)
    [file] = published["files"]
    assert pq.ParquetFile(tmp_path / "out" / file).read()["held"].to_pylist() == [2, 2]
    assert in_use(prefect_api) == 0
    assert run_job(waiting, day) == published  # what is published and fresh never waits
