"""Trials in forked processes: begun early, tried elsewhere, and again where a row ends one."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
import ray

from overnight.tasks.errors import ContractError, JobError, RowError, StageFailed
from overnight.tasks.infer import trial_runner
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Batch, Predict, Predictor
from overnight.tasks.infer.trial import Failed, Trial
from overnight.tasks.infer.trial_runner import TrialProcess, begin_trials, try_model
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.workers import fork_server
from tests.chaos.runs import wait_for
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

POOL = Pool("fragile", 1, 1, 0.9, 0)
SAMPLE = source_block(0, 0, pa.table({"row_id": [f"a#{i}" for i in range(8)], "x": np.arange(8)}))


def fail(error: Exception) -> Any:
    raise error


FACE, LIGHT = RowError("expected a face, found none"), ValueError("expected a light")
FAULTS: dict[str, Callable[[Batch], Any]] = {
    "": lambda batch: {"y": batch["x"] + 1},
    "rows": lambda batch: fail(ValueError(f"expected no {batch['x'][0]}")),
    "refuses": lambda batch: fail(FACE),
    "refuses some": lambda batch: fail(FACE if batch["x"][0] < 2 else LIGHT),
    "column": lambda batch: {"y": batch["z"]},
    "values": lambda batch: {"y": [object()] * len(batch["x"])},
    "predict": lambda batch: fail(ContractError("needs a column 'y'")),
}


class Fragile(Predictor):
    """Its process ends at its first `deaths` calls. Leaves a line in `marks` for each time that it is loaded."""

    kind: Literal["fragile"] = "fragile"
    marks: str
    deaths: int = 0
    fault: str = ""

    def imports(self) -> tuple[str, ...]:
        return ()

    def load(self) -> Predict:
        if self.fault == "load":
            raise JobError("expected a model, found none", "infer")
        os.write(1, b"raw\n")
        with open(self.marks, "a") as marks:
            marks.write(f"{os.getpid()}\n")

        def predict(batch: Batch) -> Any:
            if len(Path(self.marks).read_text().split()) <= self.deaths:
                os.kill(os.getpid(), signal.SIGKILL)
            return FAULTS[self.fault](batch)

        return predict


@pytest.fixture(autouse=True, scope="module")
def _server() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(fork_server.ADDRESS, raising=False)
        with fork_server.started():
            yield


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def try_it(marks: Path, begun: Any = None, sample: pa.Table = SAMPLE, **settings: Any) -> Trial | Failed | None:
    link, run = Link(Fragile(marks=str(marks), **settings)), make_run(marks.parent)
    return try_model(run, link, POOL, sample, begun or TrialProcess(link, run, POOL), warn=print)


def test_a_model_that_was_begun_early_is_loaded_once_and_its_prints_stay_out_of_the_terminal(
    ray_session: None, marks: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    [begun] = begin_trials(make_run(marks.parent), [Link(Fragile(marks=str(marks)))], Plan(1, None, (POOL,), ()))
    wait_for("the model to be loaded", marks.exists, 20)
    found = try_it(marks, begun)
    assert isinstance(found, Trial)
    assert found.columns.names == ["y"]
    assert len(marks.read_text().split()) == 1
    assert "raw" not in capfd.readouterr().out


def test_a_process_that_ends_is_followed_by_another(marks: Path) -> None:
    assert isinstance(try_it(marks, deaths=2), Trial)
    assert len(set(marks.read_text().split())) == 3


def test_a_model_whose_process_always_ends_is_reported(marks: Path) -> None:
    with pytest.raises(StageFailed, match=f"fragile: its process ended {trial_runner.MAX_TRIES} times while 8 rows"):
        try_it(marks, deaths=100)
    assert len(marks.read_text().split()) == trial_runner.MAX_TRIES


@pytest.mark.parametrize(("fault", "error"), [("load", JobError), ("predict", ContractError)])
def test_what_is_wrong_with_a_model_is_raised_here(marks: Path, fault: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"expected a model|needs a column"):
        try_it(marks, fault=fault)


def test_trouble_of_the_cluster_is_not_the_models(marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise ray.exceptions.RaySystemError("the node is gone")

    monkeypatch.setattr(trial_runner, "wait_until_started", lost)
    monkeypatch.setattr(ray, "kill", print)
    with pytest.raises(ray.exceptions.RaySystemError, match="the node is gone"):
        try_it(marks, begun=object())


@pytest.mark.parametrize(
    ("fault", "rows", "is_the_models", "words"),
    [
        ("rows", 8, True, "all 8 rows of the trial failed, the first, a#0, with ValueError: expected no 0 (test_trial"),
        ("rows", 1, False, "the one row of the trial failed"),
        ("values", 8, True, ""),
        ("column", 8, True, "with KeyError: 'z'; the columns are row_id, x (test_trial_runner.py:"),
        ("refuses", 8, False, ""),
        ("refuses some", 8, False, ""),
    ],
)
def test_a_model_is_to_blame_for_failed_rows_unless_it_refused_one_on_purpose_or_there_is_only_one(
    marks: Path, fault: str, rows: int, is_the_models: bool, words: str
) -> None:
    found = try_it(marks, sample=SAMPLE[:rows], fault=fault)
    assert isinstance(found, Failed)
    assert found.block["row_id"].to_pylist() == [f"a#{row}" for row in range(rows)]
    assert found.is_the_models == is_the_models, found
    assert words in str(found)
    assert not str(found).endswith("."), "a sentence goes on behind it"
