"""A model that fails for every row that it is tried on ends the run before the stream, unless it refuses the rows.

A model that passes its trial stays loaded for the stream.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import Overnight

MODULE = """
from overnight.extend import RowError


def fails(batch):
    raise ValueError("wrong weights")


def refuses(batch):
    raise RowError("no face")


def misspells(batch):
    return batch["xx"]

"""
COUNTED = """
import os

import torch


class Counted(torch.nn.Module):
    def __init__(self, file):
        super().__init__()
        with open(file, "a") as loads:
            loads.write(f"{os.getpid()}\\n")

    def forward(self, x):
        os.write(1, b"past Python's streams\\n")
        return torch.full((len(x),), os.getpid())
"""
SAID = "failing:fails: all 8 rows of the trial failed, the first, a.csv#0, with ValueError: wrong weights (failing.py:6"
REFUSED = "failing:refuses: all 8 rows of the trial failed, the first, a.csv#0, with RowError: no face (failing.py:10"


def run(
    overnight: Overnight, folder: Path, target: str, *arguments: str, **checks: float
) -> tuple[dict[str, Any], list[str]]:
    """Run a job of forty rows and this model: its receipt or failure, and the lines that it showed."""
    (WORKER_PATH / "failing.py").write_text(MODULE)
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in/a.csv").write_text("x\n" + "1\n" * 40)
    model = {"kind": "python", "target": f"failing:{target}", "batch_size": 16}
    jobs.write_job(folder / "job.yaml", source={"kind": "csv", "path": "in"}, inference=[model], checks=checks)
    done = overnight("run", "job.yaml", "--json", *arguments)
    return json.loads(done.stdout), done.stderr.splitlines()


def test_a_model_that_raises_for_every_row_of_its_trial_ends_the_run_whatever_the_job_allows(
    overnight: Overnight, tmp_path: Path
) -> None:
    failure, shown = run(overnight, tmp_path, "fails", max_quarantined=1)
    assert (failure["stage"], failure["error_type"]) == ("infer", "ContractError")
    assert failure["error_message"].startswith(SAID)
    assert failure["error_message"].endswith("raise overnight.extend.RowError.")
    assert any(SAID in line for line in shown)
    assert not any("Traceback" in line for line in shown)
    assert shown[-2:] == [
        "look at its rows: overnight show job.yaml --quarantine",
        "run it again: overnight run job.yaml",
    ]
    rows = overnight("show", "job.yaml", "--quarantine", "-n", "100", "--json").stdout.splitlines()
    assert [json.loads(row)["error_message"] for row in rows] == ["wrong weights (failing.py:6, in fails)"] * 8


def test_a_sample_that_fails_names_the_commands_of_the_sample(overnight: Overnight, tmp_path: Path) -> None:
    _, shown = run(overnight, tmp_path, "misspells", "--limit-rows", "9", "--set", "inference.0.batch_size=4")
    said = "with KeyError: 'xx'; the columns are row_id, uri, x (failing.py:14, in misspells)"
    assert any(said in line for line in shown)
    assert shown[-2:] == [
        "look at its rows: overnight show job.yaml --sample --quarantine",
        "run it again: overnight run job.yaml --set=inference.0.batch_size=4 --limit-rows=9",
    ]


@pytest.mark.slow
def test_a_model_may_refuse_the_rows_of_its_trial_as_far_as_the_job_allows_it(
    overnight: Overnight, tmp_path: Path
) -> None:
    failure, shown = run(overnight, tmp_path, "refuses", max_quarantined=0.01)
    assert (failure["stage"], failure["error_type"]) == ("infer", "TooManyQuarantined")
    assert failure["error_message"].startswith("at least 8 rows are quarantined;")  # a batch has 16
    assert "8 x infer: RowError: no face (failing.py:10, in refuses)" in failure["error_message"]
    assert any(REFUSED in line for line in shown)
    shutil.rmtree(tmp_path / "out")
    receipt, _ = run(overnight, tmp_path, "refuses", max_quarantined=1, min_rows=0)
    assert (receipt["rows_quarantined"], receipt["rows_out"]) == (40, 0)
    assert [warning for warning in receipt["warnings"] if warning.startswith(REFUSED)]
    assert [found["stage"] for found in receipt["incidents"] if found["what"].startswith(REFUSED)] == ["infer"]


@pytest.mark.slow
def test_a_model_that_passes_its_trial_is_loaded_once_and_its_worker_s_output_is_kept(
    overnight_process: Overnight, tmp_path: Path
) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n" + "1\n" * 40)
    kwargs = {"file": str(tmp_path / "loads")}
    model = {
        "kind": "torch",
        "module": "counted:Counted",
        "columns": ["x"],
        "outputs": ["pid"],
        "kwargs": kwargs,
        "workers": 1,
    }
    jobs.write_job(tmp_path / "job.yaml", source={"kind": "csv", "path": "in"}, inference=[model])
    receipt = json.loads(overnight_process("run", "job.yaml", "--json").stdout)
    assert receipt["rows_out"] == 40
    rows = [json.loads(row) for row in overnight_process("show", "job.yaml", "-n", "100", "--json").stdout.splitlines()]
    assert [str(row["pid"]) for row in rows] == (tmp_path / "loads").read_text().split() * 40
    logged = Path(receipt["logs"]).read_text().splitlines()
    assert any("past Python's streams" in line and "(trial)" not in line for line in logged)
