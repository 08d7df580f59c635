"""A model that fails for every row that it is tried on ends the run before the stream, unless it refuses the rows."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

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


def doubles(batch):
    return {"y": batch["x"] * 2}


def triples(batch):
    return {"y": batch["x"] * 3}
"""
SAID = "failing:fails: all 8 rows of the trial failed, the first, a.csv#0, with ValueError: wrong weights (failing.py:6"
REFUSED = "failing:refuses: all 8 rows of the trial failed, the first, a.csv#0, with RowError: no face (failing.py:10"


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    (WORKER_PATH / "failing.py").write_text(MODULE)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n" + "1\n" * 40)
    return {
        "name": "failing",
        "source": {"kind": "csv", "path": "in"},
        "inference": [{"kind": "python", "target": "failing:fails", "batch_size": 16}],
        "sink": {"kind": "parquet", "path": "out"},
    }


def run(overnight: Overnight, job: dict[str, Any], folder: Path, **checks: float) -> tuple[dict[str, Any], str]:
    (folder / "job.yaml").write_text(yaml.safe_dump(job | {"checks": checks}))
    done = overnight("run", "job.yaml", "--json")
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("allowed", [0.01, 1])
def test_a_model_that_raises_for_every_row_of_its_trial_ends_the_run_whatever_the_job_allows(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path, allowed: float
) -> None:
    failure, shown = run(overnight, job, tmp_path, max_quarantined=allowed)
    assert (failure["stage"], failure["error_type"]) == ("infer", "ContractError")
    assert failure["error_message"].startswith(SAID)
    assert failure["error_message"].endswith("raise overnight.extend.RowError.")
    assert SAID in shown
    assert "Traceback" not in shown
    look, again = shown.splitlines()[-2:]
    assert look == "look at its rows: overnight show job.yaml --quarantine"
    assert again == "run it again: overnight run job.yaml"
    rows = overnight("show", "job.yaml", "--quarantine", "-n", "100", "--json").stdout.splitlines()
    assert {json.loads(row)["error_message"] for row in rows} == {"wrong weights (failing.py:6, in fails)"}
    kept = pq.read_table(tmp_path / "out/_overnight/all/failure-quarantine.parquet")
    assert (len(kept), kept["error_type"][0].as_py()) == (8, "ValueError")


def test_a_sample_that_fails_names_the_commands_of_the_sample(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    job["inference"][0]["target"] = "failing:misspells"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    shown = overnight("run", "job.yaml", "--limit-rows", "9", "--set", "inference.0.batch_size=4").stderr
    assert "with KeyError: 'xx'; the columns are row_id, uri, x (failing.py:14, in misspells)" in shown
    assert shown.splitlines()[-2:] == [
        "look at its rows: overnight show job.yaml --sample --quarantine",
        "run it again: overnight run job.yaml --set=inference.0.batch_size=4 --limit-rows=9",
    ]


def test_a_trial_whose_rows_are_too_many_to_lose_ends_the_run_before_the_stream(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    job["inference"][0]["target"] = "failing:refuses"
    failure, shown = run(overnight, job, tmp_path, max_quarantined=0.01)
    assert (failure["stage"], failure["error_type"]) == ("infer", "TooManyQuarantined")
    assert failure["error_message"].startswith("at least 8 rows are quarantined;")  # a batch has 16
    assert "8 x infer: RowError: no face (failing.py:10, in refuses)" in failure["error_message"]
    assert REFUSED in shown


def test_where_the_job_allows_it_a_model_may_refuse_every_row_and_the_receipt_warns(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    job["inference"][0]["target"] = "failing:refuses"
    receipt, shown = run(overnight, job, tmp_path, max_quarantined=1, min_rows=0)
    assert (receipt["rows_quarantined"], receipt["rows_out"]) == (40, 0)
    assert REFUSED in shown
    assert [warning for warning in receipt["warnings"] if warning.startswith(REFUSED)]
    assert [found["stage"] for found in receipt["incidents"] if found["what"].startswith(REFUSED)] == ["infer"]


def test_samples_are_shown_and_compared_side_by_side_and_nothing_is_published(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    for target in ("doubles", "triples"):
        job["inference"][0]["target"] = f"failing:{target}"
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        done = overnight("run", "job.yaml", "--limit-rows", "5")
        assert re.search(r"failing/all: sample of 5 rows, nothing published: \S+/samples/published/\S+", done.stdout)
        assert "more: overnight show job.yaml --sample\n" in done.stdout
    compared = overnight("diff", "job.yaml", "sample-1", "sample-2", "--json")
    assert compared.returncode == 1
    found = json.loads(compared.stdout)
    assert (found["rows_in_both"], found["rows_changed"], list(found["columns"])) == (5, 5, ["y"])
    assert found["columns"]["y"]["examples"][0] == {"row_id": "a.csv#0", "a": 2, "b": 3}
    cleaned = json.loads(overnight("clean", "job.yaml", "--yes", "--json").stdout)
    assert [item["what"] for item in cleaned["removed"]] == ["samples"]
    assert overnight("show", "job.yaml", "--sample").returncode == 1
