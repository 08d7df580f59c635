"""`inference` holds models and steps; a class of `kind: python` is a model, a function without a name is a step."""

from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import job_schema
from overnight.flows.job.model import Job
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.preprocess.kinds import PreprocessStep, PythonStep
from tests.jobs import load

CODE = """
import functools
from functools import partial

from elsewhere_in_a_job import other, Imported as Second, lost

class Model:
    def __call__(self, batch): return batch

def step(batch): return batch

named = step
short = lambda batch: batch
set_up = functools.partial(named, by=2)
of_model = partial(Model)
made = set_up()
"""
ELSEWHERE = "class Imported:\n    pass\n\n\nif True:\n    async def other(batch): return batch\n"
FILTER: dict[str, Any] = {"kind": "filter_rows", "expression": "x > 1"}


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaves_of_a_job.py").write_text(CODE)
    (tmp_path / "elsewhere_in_a_job.py").write_text(ELSEWHERE)
    monkeypatch.chdir(tmp_path)


def job(*inference: dict[str, Any], preprocess: list[Any] | None = None, **sink: Any) -> Job:
    source, target = {"kind": "images", "path": "/in"}, {"kind": "parquet", "path": "/out", **sink}
    return load(Path("/x"), source=source, preprocess=preprocess, inference=list(inference), sink=target)


def python(target: str, **settings: Any) -> dict[str, Any]:
    return {"kind": "python", "target": f"leaves_of_a_job:{target}", **settings}


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        *[(python(name), PythonPredictor) for name in ("Model", "Second", "lost", "of_model", "made", "not_there")],
        *[(python(name), PythonStep) for name in ("step", "named", "short", "other", "set_up")],
        (python("step", explode=["x"]), PythonStep),
        (python("step", kwargs={"by": 2}), PythonStep),
        (python("step", name="a"), PythonPredictor),
        (python("step", num_gpus=1), PythonPredictor),
    ],
)
def test_python_is_a_model_or_a_step_by_what_the_source_defines(entry: dict[str, Any], kind: type) -> None:
    assert type(job(entry).inference[0]) is kind


def test_steps_ahead_of_the_first_model_prepare_and_the_others_belong_to_the_model_before_them() -> None:
    found = job(FILTER, python("Model", name="a"), python("step"), FILTER, python("Model", name="b"))
    assert [step.kind for step in found.steps] == ["decode_image", "filter_rows"]
    assert [model.name for model in found.models] == ["a", "b"]
    assert [[step.kind for step in steps] for steps in found.steps_behind] == [["python", "filter_rows"], []]
    assert job(FILTER).steps_behind == []


def test_a_step_of_inference_is_part_of_what_decides_results() -> None:
    one, other = job(python("Model"), FILTER).ingredients(), job(python("Model")).ingredients()
    assert one["settings"]["inference"][1] == FILTER
    assert one["settings"]["preprocess"] == other["settings"]["preprocess"] == [{"kind": "decode_image"}]
    assert len(one["models"]) == 2


def test_a_function_in_inference_is_recorded_as_it_was_when_it_was_a_model() -> None:
    found = job(python("step")).ingredients()  # otherwise what it has published would be stale
    assert found["settings"]["inference"] == [{"kind": "python", "target": "leaves_of_a_job:step"}]
    assert found["settings"]["preprocess"] == [{"kind": "decode_image"}]
    assert [list(files) for files in found["models"]] == [["elsewhere_in_a_job.py", "leaves_of_a_job.py"]]
    assert found["steps"] == [{}]  # of decode_image


def test_the_schema_names_every_kind_that_inference_takes() -> None:
    mapping = job_schema()["properties"]["inference"]["items"]["discriminator"]["mapping"]
    assert {"chat", "python", "crop_boxes", "filter_rows"} <= mapping.keys()


def test_every_step_says_which_columns_it_reads() -> None:
    steps = [FILTER, {"kind": "derive_columns", "columns": {"y": "x + z"}}, {"kind": "explode", "columns": ["l"]}]
    found = [step for step in job(*steps).steps if step.kind != "decode_image"]
    assert all(isinstance(step, PreprocessStep) for step in found)
    assert [step.inputs() for step in found] == [["x"], ["x", "z"], ["l"]]


EQUAL: dict[str, Any] = {"kind": "deduplicate", "columns": ["x"]}
NEAR: dict[str, Any] = {"kind": "deduplicate", "near": {"column": "v", "threshold": 0.9}}


def test_a_deduplicate_is_a_step_before_the_models_and_ends_the_job_behind_them() -> None:
    found = job(EQUAL, python("Model", name="a"), FILTER, EQUAL, NEAR)
    assert [step.kind for step in found.steps] == ["decode_image", "deduplicate"]
    assert [[step.kind for step in steps] for steps in found.steps_behind] == [["filter_rows"]]
    assert [step.rule.columns for step in found.last_steps] == [("x",), ("v",)]
    alone = job(FILTER, EQUAL)
    assert [step.kind for step in alone.steps] == ["decode_image", "filter_rows", "deduplicate"]
    assert alone.last_steps == []


def test_a_deduplicate_that_comes_first_compares_files_before_they_are_decoded() -> None:
    assert [step.kind for step in job(preprocess=[EQUAL]).steps] == ["deduplicate", "decode_image"]
    resized = job(preprocess=[EQUAL, {"kind": "resize_image", "size": 8}])
    assert [step.kind for step in resized.steps] == ["deduplicate", "resize_image"]
