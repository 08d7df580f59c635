"""The stages of a stream as operators of Ray Data: what is placed where, and the names by which progress knows them."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray.data

from overnight.tasks.engine.segment import Segment
from overnight.tasks.engine.stage import Stage
from overnight.tasks.engine.stream import Stream
from overnight.tasks.infer.link import Link, StepsBehind
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.infer.models.vllm import VLLM
from overnight.tasks.infer.operators import (
    ModelSegment,
    Placement,
    context,
    in_tasks,
    names_by_stage,
    on_ray,
    place,
    placement,
    prepare,
)
from overnight.tasks.infer.predictor import engines
from overnight.tasks.infer.trial_runner import pools_of
from overnight.tasks.infer.worker_process import calls_at_once
from overnight.tasks.infer.worker_sizing import Choice
from overnight.tasks.resources.planner import make_plan
from overnight.tasks.state.run import Run
from overnight.tasks.write.stream.progress import follow
from tests.tasks.engine.stages import FakeRead, Half, units_of
from tests.tasks.manifests import write_order
from tests.tasks.runs import make_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path)
    write_order(run.order, units_of(2, rows=1), np.arange(2))
    return run


def test_reading_and_preprocessing_are_recognized_by_their_operators(ray_session: None, run: Run) -> None:
    plan = make_plan([PythonPredictor(target="my:Model")], [{"CPU": 4}], {})
    segments = [in_tasks((FakeRead(),), plan), prepare((Half(),), plan)]
    names = names_by_stage(segments)
    reports: list[dict[str, int]] = []
    with ray.data.DataContext.current(context()):
        dataset = on_ray(run, segments)
    with follow(dataset, names, lambda moment: reports.append(moment.rows)):
        assert sum(bundle.num_rows() for bundle in dataset.iter_internal_ref_bundles()) == 10
    assert reports[-1] == {"ingest": 20, "preprocess": 10}


def test_tasks_stay_apart_from_workers_that_reserve_as_many_cpus(
    ray_session: None, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    model = PythonPredictor(target="my:Model", workers=1)
    plan = make_plan([model], [{"CPU": 4}], {})
    assert plan.task_cpus == plan.pools[0].num_cpus == 1
    choice = Choice(Link(model), plan.pools[0], None, None)
    segments = place(Stream(FakeRead(), True, steps=Half()), [choice], plan, Placement(), iter)
    with ray.data.DataContext.current(context()):
        on_ray(run, segments).explain()
    operators = [line for line in capsys.readouterr().out.splitlines() if "MapBatches(inference python)" in line]
    assert operators
    assert not [line for line in operators if "half" in line], "a row prepared in the model's worker waits for it"


@pytest.mark.parametrize(
    ("placed", "device", "labels"),
    [
        (Placement(True, True), {}, [["ingest", "half", "inference python"]]),
        (Placement(True, False), {}, [["ingest"], [], ["half", "inference python"]]),
        (Placement(), {}, [["ingest"], ["half"], ["inference python"]]),
        (Placement(), {"num_gpus": 1}, [["ingest"], ["half"], ["inference python"], ["half"]]),
    ],
    ids=["reads and prepares", "prepares", "apart", "on a device"],
)
def test_stages_are_cut_into_segments_for_the_processes_that_run_them(
    placed: Placement, device: dict[str, int], labels: list[list[str]]
) -> None:
    model = PythonPredictor(target="my:Model", **device)
    plan = make_plan([model], [{"CPU": 4, "GPU": 1}], {})
    choice = Choice(Link(model, steps=Half()), plan.pools[0], None, None)
    segments = place(Stream(FakeRead(), False, steps=Half()), [choice], plan, placed, iter)
    assert [[stage.label for stage in segment.stages] for segment in segments] == labels
    [of_model] = [segment for segment in segments if isinstance(segment, ModelSegment)]
    assert of_model.choice == choice
    assert isinstance(segments[-1].stages[-1], StepsBehind if device else Link)
    assert pickled_needs_ray(of_model)
    assert not pickled_needs_ray(of_model.for_process()), "its import would take seconds of CPU"
    infer = names_by_stage(segments)["infer"]
    assert infer == [f"({segment.name})" for segment in segments if segment.stages[-1:] and "inf" in _counts(segment)]


def test_models_of_one_engine_run_in_the_workers_of_the_first_with_the_steps_between_them() -> None:
    models = [VLLM(model="/a", user="a", num_gpus=1, name="a", max_concurrent_requests=n) for n in (8, 64)]
    alone = VLLM(model="/b", user="b", num_gpus=1, name="b")
    plan = make_plan(engines([*models, alone]), [{"CPU": 4, "GPU": 2}], {})
    assert [pool.label for pool in plan.pools] == ["a + a", "b"]
    links = [Link(models[0], steps=Half()), Link(models[1], steps=Half(), shares_engine=True), Link(alone)]
    pools = pools_of(links, plan)
    choices = [Choice(link, pool, None, None) for link, pool in zip(links, pools, strict=True)]
    segments = place(Stream(FakeRead(), False), choices, plan, Placement(), iter)
    labels = [[stage.label for stage in segment.stages] for segment in segments]
    assert labels == [["ingest"], [], ["inference a", "inference a"], ["half"], ["inference b"]]
    shared = segments[2]
    assert isinstance(shared.stages[0], Link)
    assert shared.stages[0].steps is not None
    assert calls_at_once(shared) == models[1].calls_at_once() > models[0].calls_at_once()


def pickled_needs_ray(segment: Segment) -> bool:
    """Whether a process that gets the segment imports Ray."""
    code = "import pickle, sys; pickle.load(sys.stdin.buffer); print('ray' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(segment), capture_output=True, check=True)
    return told.stdout == b"True\n"


def _counts(segment: object) -> str:
    stages: tuple[Stage, ...] = segment.stages  # type: ignore[attr-defined]
    return stages[-1].counts_as


@pytest.mark.parametrize(("rows", "fewer", "expected"), [
    (1, False, Placement(True, True)), (2, False, Placement(True, False)), (1, True, Placement()),
])  # fmt: skip
def test_workers_prepare_rows_if_there_is_one_for_each_cpu_and_read_files_of_one_row(
    tmp_path: Path, rows: int, fewer: bool, expected: Placement
) -> None:
    run, model = make_run(tmp_path), PythonPredictor(target="my:Model")
    write_order(run.order, units_of(2, rows=rows), np.arange(2))
    plan = make_plan([model], [{"CPU": 4}], {})
    pool = replace(plan.pools[0], maximum=2) if fewer else plan.pools[0]
    assert placement(run, plan, [Choice(Link(model), pool, None, None)]) == expected
    assert placement(run, plan, []) == Placement()


def test_rows_of_a_model_on_a_device_keep_its_heavy_columns_and_lose_those_that_nothing_reads(tmp_path: Path) -> None:
    columns = pa.schema([("vectors", pa.binary())])
    link, behind = Link(PythonPredictor(target="my:Model"), steps=Half(), read=("kept",), columns=columns).cut()
    assert (link.steps, link.read) == (None, None)
    assert behind
    block = Half().block(photo=[b"a"] * 4, kept=[b"b"] * 4, vectors=[b"c"] * 4)
    [made] = behind.load(make_run(tmp_path)).on([block], None)
    assert {"kept", "vectors", "__left_out_photo"} < set(made.column_names)
    assert "photo" not in made.column_names
