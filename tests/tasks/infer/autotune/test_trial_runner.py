"""Trials in forked processes: begun early, tried elsewhere, and again where a row ends one."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
import ray

from overnight.tasks.errors import ContractError, JobError, RowError, StageFailed
from overnight.tasks.infer.autotune import trial_runner
from overnight.tasks.infer.autotune.trial import Failed, ModelTrial, Trial, loaded
from overnight.tasks.infer.autotune.trial_runner import begin_trials, tried
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Batch, Predict, Predictor
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import Begun
from tests.chaos.runs import wait_for
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

POOL = Pool("fragile", 1, 1, 0.9, 0)
SAMPLE = source_block(0, 0, pa.table({"row_id": [f"a#{i}" for i in range(8)], "x": np.arange(8)}))


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
        if self.fault == "print":
            os.write(1, b"raw\n")
        with open(self.marks, "a") as marks:
            marks.write(f"{os.getpid()}\n")

        def predict(batch: Batch) -> dict[str, Any]:
            if len(Path(self.marks).read_text().split()) <= self.deaths:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "rows":
                raise ValueError(f"expected no {batch['x'][0]}")
            if self.fault == "refuses":
                raise RowError("expected a face, found none")
            if self.fault == "refuses some" and batch["x"][0] < 2:
                raise RowError("expected a face, found none") from ValueError("no contour")
            if self.fault == "refuses some":
                raise ValueError("expected a light")
            if self.fault == "column":
                return {"y": batch["z"]}
            if self.fault == "values":
                return {"y": [object()] * len(batch["x"])}
            if self.fault == "predict":
                raise ContractError("needs a column 'y'")
            return {"y": batch["x"] + 1}

        return predict


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    with fork_server.started():
        yield


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def try_it(folder: Path, model: Fragile, begun: Any = None, sample: pa.Table = SAMPLE) -> Trial | Failed | None:
    return tried(make_run(folder), Link(model), POOL, sample, 8, begun, warn=print)


def test_a_model_that_was_begun_early_is_loaded_once(tmp_path: Path, marks: Path) -> None:
    plan = Plan(1, None, (POOL,), ())
    [begun] = begin_trials(make_run(tmp_path), [Link(Fragile(marks=str(marks)))], plan)
    wait_for("the model to be loaded", marks.exists, 20)
    found = try_it(tmp_path, Fragile(marks=str(marks)), begun)
    assert isinstance(found, Trial)
    assert found.columns.names == ["y"]
    assert len(marks.read_text().split()) == 1


def test_a_process_that_ends_is_followed_by_another(tmp_path: Path, marks: Path) -> None:
    model = Fragile(marks=str(marks), deaths=2)
    assert isinstance(try_it(tmp_path, model, Begun(partial(loaded, Link(model), make_run(tmp_path)))), Trial)
    assert len(set(marks.read_text().split())) == 3


def test_a_model_whose_process_always_ends_is_told_of(tmp_path: Path, marks: Path) -> None:
    ended = f"inference fragile: its process ended {trial_runner.MAX_TRIES} times while 8 rows were tried"
    with pytest.raises(StageFailed, match=ended):
        try_it(tmp_path, Fragile(marks=str(marks), deaths=100))
    assert len(marks.read_text().split()) == trial_runner.MAX_TRIES


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [("load", JobError, "expected a model, found none"), ("predict", ContractError, "needs a column 'y'")],
)
def test_what_is_wrong_with_a_model_is_raised_here(
    tmp_path: Path, marks: Path, fault: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        try_it(tmp_path, Fragile(marks=str(marks), fault=fault))


def test_trouble_of_the_cluster_is_not_the_models(tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise ray.exceptions.RaySystemError("the node is gone")

    monkeypatch.setattr(trial_runner, "_tried_by_ray", lost)
    with pytest.raises(ray.exceptions.RaySystemError, match="the node is gone"):
        try_it(tmp_path, Fragile(marks=str(marks)), begun=object())


def test_what_fails_while_nothing_waits_for_it_is_raised_by_the_call_that_is_waited_for(tmp_path: Path) -> None:
    trying = ModelTrial(Link(Fragile(marks=str(tmp_path / "marks"), fault="load")), make_run(tmp_path))
    trying.loaded()
    with pytest.raises(JobError, match="expected a model, found none"):
        trying.on(SAMPLE)


def test_a_model_that_fails_for_every_row_says_so(tmp_path: Path, marks: Path) -> None:
    found = try_it(tmp_path, Fragile(marks=str(marks), fault="rows"))
    assert isinstance(found, Failed)
    assert found.block["row_id"].to_pylist() == [f"a#{i}" for i in range(8)]
    said = "all 8 rows of the trial failed, the first, a#0, with ValueError: expected no 0 (test_trial_runner.py:"
    assert str(found).startswith(said)


@pytest.mark.parametrize(
    ("fault", "is_the_models"),
    [("rows", True), ("values", True), ("column", True), ("refuses", False), ("refuses some", False)],
)
def test_a_model_is_to_blame_unless_it_refused_a_row_on_purpose(
    tmp_path: Path, marks: Path, fault: str, is_the_models: bool
) -> None:
    found = try_it(tmp_path, Fragile(marks=str(marks), fault=fault))
    assert isinstance(found, Failed)
    assert found.is_the_models == is_the_models, found
    assert not str(found).endswith(".")  # a sentence goes on behind it


def test_one_row_alone_does_not_show_who_is_to_blame(tmp_path: Path, marks: Path) -> None:
    found = try_it(tmp_path, Fragile(marks=str(marks), fault="rows"), sample=SAMPLE[:1])
    assert isinstance(found, Failed)
    assert not found.is_the_models


def test_a_model_that_asks_for_a_column_that_is_not_there_is_told_which_there_are(tmp_path: Path, marks: Path) -> None:
    found = str(try_it(tmp_path, Fragile(marks=str(marks), fault="column")))
    assert "with KeyError: 'z'; the columns are row_id, x (test_trial_runner.py:" in found


def test_what_a_model_prints_in_a_trial_that_was_begun_early_stays_out_of_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Fragile(marks=str(tmp_path / "marks"), fault="print")
    [begun] = begin_trials(make_run(tmp_path), [Link(model)], Plan(1, None, (POOL,), ()))
    assert isinstance(try_it(tmp_path, model, begun), Trial)
    assert "raw" not in capfd.readouterr().out
