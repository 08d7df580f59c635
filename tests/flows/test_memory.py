"""Jobs with a memory, as Prefect and Ray run them: a change runs only what it concerns, and the result is the same."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.errors import OvernightError
from tests import jobs
from tests.flows.conftest import Overnight, RunJob, assert_settled, parquet, published, write_parquet

pytestmark = pytest.mark.slow

MODELS = """
import os, pathlib, uuid
CALLS = pathlib.Path({calls!r})
class Adds:
    def __init__(self, name, add=1):
        self.name, self.add = name, add
    def __call__(self, batch):
        CALLS.mkdir(exist_ok=True)
        for n in batch["n"]:
            (CALLS / f"{{self.name}}-{{n}}-{{uuid.uuid4().hex}}").touch()
        return {{"sum": batch["n"] + self.add}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = f"adding_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODELS.format(calls=str(tmp_path / "calls")))
    monkeypatch.chdir(tmp_path)
    write_parquet(tmp_path / "in/a.parquet", n=range(40))
    return tmp_path


def model(folder: Path, name: str, **kwargs: Any) -> dict[str, Any]:
    [module] = folder.glob("adding_*.py")
    return {"kind": "python", "name": name, "target": f"{module.stem}:Adds", "kwargs": {"name": name, **kwargs}}


def job_of(folder: Path, *inference: dict[str, Any], name: str = "first", **more: Any) -> dict[str, Any]:
    more = {"memory": {"path": f"{folder}/memory"}, **more}
    sink = {"kind": "parquet", "path": f"{folder}/{name}"}
    return jobs.job(folder, name=name, source=parquet(folder), inference=list(inference), sink=sink, **more)


def calls(folder: Path) -> dict[str, int]:
    """The rows that each model got since the last look; a trial calls it for a few more than the stream."""
    files = list((folder / "calls").glob("*"))
    count = Counter(name for name, _ in {tuple(file.name.split("-")[:2]) for file in files})
    for file in files:
        file.unlink()
    return dict(count)


def rows(receipt: dict[str, Any], sink: Path) -> pa.Table:
    return published(receipt, sink).sort_by("n")


def test_a_change_runs_only_the_models_and_rows_that_it_concerns(
    folder: Path, run_job: RunJob, overnight: Overnight
) -> None:
    a, b = model(folder, "a"), model(folder, "b", add=2)
    run_job(job_of(folder, a, b))
    assert calls(folder) == {"a": 40, "b": 40}

    changed = model(folder, "b", add=3)
    receipt = run_job(job_of(folder, a, changed))
    assert (calls(folder), receipt["rows_remembered"]) == ({"b": 40}, {"a": 40})
    assert_settled(receipt, written=40)
    fresh = run_job(job_of(folder, a, changed, name="fresh", memory=None))
    assert rows(receipt, folder / "first").equals(rows(fresh, folder / "fresh")), "as from nothing"
    calls(folder)

    keep = {"kind": "filter_rows", "expression": "a_sum > 30"}
    receipt = run_job(job_of(folder, a, keep, changed))
    assert (calls(folder), receipt["rows_remembered"]) == ({}, {"a": 40, "b": 10})

    receipt = run_job(job_of(folder, a, changed, model(folder, "c"), name="second"))
    assert (calls(folder), receipt["rows_remembered"]) == ({"c": 40}, {"a": 40, "b": 40}), "another job shares it"

    write_parquet(folder / "in/b.parquet", n=range(40, 45))
    receipt = run_job(job_of(folder, a, changed))
    assert calls(folder) == {"a": 5, "b": 5}, "only the rows of the new file"
    assert receipt["rows_out"] == 45

    receipt = run_job(job_of(folder, a, changed), force=True)
    assert (calls(folder), "rows_remembered" in receipt) == ({"a": 45, "b": 45}, False)
    done = overnight("run", str(folder / "first.yaml"), "--set", "inference.1.kwargs.add=9")
    assert "remembered by a: 45 rows of earlier runs" in done.stdout
    assert len(list((folder / "memory").glob("*/*.rows"))) == len(list((folder / "memory").glob("*/*.npy")))


def test_a_run_that_failed_leaves_what_it_had_staged(folder: Path, run_job: RunJob) -> None:
    a = model(folder, "a")
    with pytest.raises(OvernightError):
        run_job(job_of(folder, a, model(folder, "b"), checks={"min_rows": 1000}))
    calls(folder)
    receipt = run_job(job_of(folder, a, model(folder, "b", add=5)))
    assert (calls(folder), receipt["rows_remembered"]) == ({"b": 40}, {"a": 40})


def test_a_remembered_step_runs_on_no_known_row_and_on_all_after_another_setting(folder: Path, run_job: RunJob) -> None:
    code = {"remember": True, "columns": ["n"]}
    step, a = model(folder, "s") | code, model(folder, "a", add=5) | code
    label = f"step 1 {step['target']}"
    del step["name"]
    first = run_job(job_of(folder, a, preprocess=[step]))
    assert calls(folder) == {"s": 40, "a": 40}
    second = job_of(folder, a, name="second", preprocess=[step])
    receipt = run_job(second)
    assert (calls(folder), receipt["rows_remembered"]) == ({}, {label: 40, "a": 40})
    assert rows(receipt, folder / "second").equals(rows(first, folder / "first"))
    parity = {"kind": "derive_columns", "columns": {"parity": "n % 2"}}
    receipt = run_job(second | {"preprocess": [parity, step]})
    label = label.replace("1", "2", 1)
    assert (calls(folder), receipt["rows_remembered"]) == ({}, {label: 40, "a": 40}), "a column that neither reads"
    receipt = run_job(second | {"preprocess": [step | {"kwargs": {"name": "s", "add": 2}}]})
    assert (calls(folder), receipt["rows_remembered"]) == ({"s": 40}, {"a": 40})
