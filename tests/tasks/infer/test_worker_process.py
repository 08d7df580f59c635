"""The process of a worker: it gives what a worker gives here, and is the trial's if that has the same place."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.engine.segment import Segment, SegmentWorker
from overnight.tasks.errors import ContractError
from overnight.tasks.infer.chat.row_settings import ByRow
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.vllm import VLLM
from overnight.tasks.infer.predictor import Predict, Predictor, by_engine
from overnight.tasks.infer.trial import Trial
from overnight.tasks.infer.trial_runner import TrialProcess
from overnight.tasks.infer.worker_process import WorkerProcess
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import Run
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.forked_process import Begun
from overnight.tasks.workers.spending import Spending
from tests.tasks.infer.chat_models import chat_model
from tests.tasks.infer.engine_in_place_of_vllm import interpreter_in, starts_in
from tests.tasks.infer.test_trial_runner import POOL, SAMPLE, Fragile
from tests.tasks.infer.test_worker import ByThree, Counting, block
from tests.tasks.runs import make_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


def test_a_worker_in_a_process_of_its_own_gives_what_one_gives_here(run: Run) -> None:
    segment = Segment((ByThree(), Link(Counting(batch_size=4))))
    there, here = WorkerProcess(segment, run), SegmentWorker(segment, run)
    for count in (10, 3):
        [found], [expected] = there(block(count)), here(block(count))
        assert blocks.visible(found).equals(blocks.visible(expected))
    with pytest.raises(ContractError, match="'x'"):
        list(there(block(2).drop_columns("x")))


@pytest.fixture
def tried(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Begun]:
    """The arguments of a worker, and the process of its model's trial, released, without a fork server."""
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    link = Link(Fragile(marks=str(tmp_path / "marks")))
    trying = TrialProcess(link, run, POOL)
    trying.on(SAMPLE, link)
    return {"segment": Segment((link,)), "run": run}, trying.release()


@pytest.mark.parametrize(("where", "loads"), [("here", 1), ("elsewhere", 2), ("ended", 2)])
def test_the_first_worker_with_the_place_of_the_trial_does_not_load_the_model_again(
    tried: tuple[dict[str, Any], Begun], where: str, loads: int, tmp_path: Path
) -> None:
    settings, begun = tried
    if where == "elsewhere":
        begun.place = ("another node", {"GPU": ["0"]})
    if where == "ended":
        begun.end()
    worker = WorkerProcess(loaded_in=begun, **settings)
    assert [table["y"].to_pylist() for table in worker(SAMPLE)] == [list(range(1, 9))]
    second = WorkerProcess(loaded_in=begun, **settings)
    assert len((tmp_path / "marks").read_text().split()) == loads + 1, "a second worker loads its own"
    del second
    begun.end()


def tried_and_run(models: Sequence[Predictor], run: Run) -> list[pa.Table]:
    """Try the models in one process, which becomes their worker, and return what that makes of the sample."""
    links = [Link(model, f"{model.name}_", shares_engine=model is not models[0]) for model in models]
    trying, sample = TrialProcess(links[0], run, POOL), SAMPLE
    for link in links:
        trial = trying.on(sample, link)
        assert isinstance(trial, Trial)
        assert "generated_text" in trial.columns.names
        sample = trial.behind
    return list(WorkerProcess(Segment(tuple(links)), run, trying.release())(SAMPLE))


def test_two_prompts_of_the_weights_in_a_worker_give_what_each_gives_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = supervisor.Supervisor()
    monkeypatch.setattr(supervisor, "ask", lambda run, question, *arguments: question(state, *arguments))
    settings = {"model": str(chat_model(tmp_path / "model")), "max_new_tokens": 5}
    first = Chat(name="first", user="{x} b", by_row={"max_new_tokens": "x"}, **settings)
    second = Chat(name="second", user="{first_generated_text} b", where="x > 2", **settings)
    assert [len(group) for group in by_engine([first, second])] == [2]
    [answers] = tried_and_run([first, second], run)
    rows = answers.to_pylist()
    assert rows[0]["__error_message"].startswith("x: expected a value for max_new_tokens, found '0'")
    alone = first.model_copy(update={"max_new_tokens": 4, "by_row": ByRow()}).load()
    assert rows[4]["first_generated_text"] == alone_answer(alone, rows[4])
    assert rows[4]["second_generated_text"] == alone_answer(second.load(), rows[4])
    assert (rows[2]["first_generated_text"] is None, rows[2]["second_generated_text"]) == (False, None)


def alone_answer(predict: Predict, row: dict[str, Any]) -> str:
    outcome: Any = predict({name: np.array([value], object) for name, value in row.items()})
    return str(outcome.columns["generated_text"][0])


def test_models_of_one_engine_are_tried_in_one_process_which_becomes_their_worker(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    state = supervisor.Supervisor()
    state.begin_spending(Spending({}, None, {}))
    monkeypatch.setattr(supervisor, "ask", lambda run, question, *arguments: question(state, *arguments))
    settings = {"model": str(chat_model(tmp_path / "model")), "python": str(interpreter_in(tmp_path))}
    prompts = {"forth": "{x} b", "back": "{forth_generated_text}"}
    models = [VLLM(name=name, user=user, **settings) for name, user in prompts.items()]
    [answers] = tried_and_run(models, run)
    assert answers["back_generated_text"].to_pylist() == [f"{x} b" for x in SAMPLE["x"].to_pylist()]
    assert len(starts_in(tmp_path)) == 1
    [(name, counters)] = state.snapshot(run.attempt).engines.items()
    assert (name, counters["generated_tokens"] >= 2 * len(SAMPLE)) == ("forth + back", True)


@pytest.fixture
def short() -> Iterator[str]:
    """A folder whose path is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="ov-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


LOCAL_RAY = """
import os, subprocess, sys
from overnight.flows.runs.local_ray import start_local_ray
from overnight.tasks.infer.worker_process import ray_variables

start_local_ray(num_cpus=1, include_dashboard=False, log_to_driver=False)
code = "import ray; ray.init(log_to_driver=False); print('nodes', len(ray.nodes()))"
joined = subprocess.run([sys.executable, "-c", code], env={**os.environ, **ray_variables()}, timeout=60)
sys.exit(joined.returncode)
"""


@pytest.mark.slow
def test_code_of_a_model_finds_the_ray_of_this_machine_which_listens_on_127_0_0_1_alone(short: str) -> None:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**alone, "RAY_TMPDIR": short}
    told = subprocess.run(
        [sys.executable, "-c", LOCAL_RAY], env=environment, capture_output=True, timeout=120, check=False
    )
    assert b"nodes 1" in told.stdout, told.stderr.decode()
