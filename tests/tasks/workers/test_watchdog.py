"""A process that is through with its rows, well or with an error, is not taken for one that they killed."""

import contextlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray

from overnight.tasks.infer.autotune.trial import ModelTrial
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.preprocess.run_steps import try_steps
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.workers.supervisor import incidents, supervised
from tests.conftest import WORKER_PATH
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

MODULE = """
    import os

    def doubles(batch):
        return {"twice": batch["x"] * 2}

    def breaks_the_contract(batch):
        return [1]

    class DiesTheFirstTime:
        def __init__(self, mark):
            self.mark = mark

        def __call__(self, batch):
            if not os.path.exists(self.mark):
                open(self.mark, "w").close()
                os._exit(1)
            return {"twice": batch["x"] * 2}
"""
BLOCK = source_block(0, 0, pa.table({"row_id": ["a", "b"], "x": [1, 2]}))

Try = Callable[..., Any]


def steps(run: Any, target: str, **kwargs: Any) -> Any:
    step = PythonStep(target=f"guarded:{target}", kwargs=kwargs)
    return ray.remote(max_calls=1, max_retries=1)(try_steps).remote(BLOCK, (step,), run)


def model(run: Any, target: str, **kwargs: Any) -> Any:
    predictor = PythonPredictor(target=f"guarded:{target}", kwargs=kwargs)
    return (
        ray.remote(ModelTrial).options(max_restarts=1, max_task_retries=1).remote(Link(predictor), run).on.remote(BLOCK)
    )


@pytest.fixture(autouse=True)
def _module(ray_session: None) -> None:
    (WORKER_PATH / "guarded.py").write_text(textwrap.dedent(MODULE))


@pytest.mark.parametrize("attempt", [steps, model])
@pytest.mark.parametrize("target", ["doubles", "breaks_the_contract"])
def test_a_later_attempt_at_the_same_sample_counts_no_death(tmp_path: Path, attempt: Try, target: str) -> None:
    run = make_run(tmp_path, job=tmp_path.name, token=1, row_timeout_seconds=60)
    with supervised(run):
        for _ in range(2):
            with contextlib.suppress(ray.exceptions.RayTaskError):
                ray.get(attempt(run, target))
        assert incidents(run) == []


@pytest.mark.parametrize("attempt", [steps, model])
def test_a_death_at_the_sample_is_counted(tmp_path: Path, attempt: Try) -> None:
    run = make_run(tmp_path, job=tmp_path.name, token=1, row_timeout_seconds=60)
    with supervised(run):
        ray.get(attempt(run, "DiesTheFirstTime", mark=str(tmp_path / "mark")))
        told = [(incident["what"], incident["times"]) for incident in incidents(run)]
    assert told == [("a worker died and its rows were run again", 1)]


TWO_THREADS = """
    import threading, time
    from overnight.tasks.workers.watchdog import _process_limited

    def call(seconds):
        with _process_limited(60):
            time.sleep(seconds)

    with _process_limited(1):
        slow, quick = (threading.Thread(target=call, args=(seconds,), daemon=True) for seconds in (30, 0))
        slow.start()
        quick.start()
        quick.join()
        time.sleep(30)
"""


def test_of_the_limits_of_several_threads_the_earliest_is_in_force_and_stays_so() -> None:
    started = time.monotonic()
    command = [sys.executable, "-c", textwrap.dedent(TWO_THREADS)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert time.monotonic() - started < 25
