"""What is done is staged while the rest is worked on, whatever is slow and however many rows lie in one file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob

ROWS, ROWS_OF_A_SAMPLE = 500, 8
MODULE = """
import time
from pathlib import Path


def done(batch, folder, slow_from=0):
    for x in batch["x"]:
        is_slow = x >= slow_from and not any(Path(folder).rglob("*.part"))
        if is_slow:
            time.sleep(0.2)
            with open(f"{folder}/slow", "a") as lines:
                lines.write(f"{x}\\n")
    return {"y": batch["x"] * 2}


class Model:
    def __init__(self, **settings):
        self.settings = settings

    def __call__(self, batch):
        return done(batch, **self.settings)
"""


def slow(target: str, folder: Path, **kwargs: Any) -> dict[str, Any]:
    """A step or a model that takes 0.2 s a row until there is a staged part, and lists the rows that took so long."""
    return {"kind": "python", "target": f"slow_by_row:{target}", "kwargs": {"folder": str(folder), **kwargs}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "slow_from", "files"),
    [
        ("inference", ROWS_OF_A_SAMPLE, 1),  # its rows are slower than those of its trial
        ("preprocess", ROWS_OF_A_SAMPLE, 1),
        ("preprocess", 0, ROWS),
    ],
)
def test_rows_that_are_done_are_staged_while_others_are_worked_on(
    section: str, slow_from: int, files: int, run_job: RunJob, tmp_path: Path
) -> None:
    (WORKER_PATH / "slow_by_row.py").write_text(MODULE)
    out = tmp_path / "out"
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    lines = [json.dumps({"x": x}) + "\n" for x in range(ROWS)]
    for file in range(files):
        (tmp_path / f"in/{file:03}.jsonl").write_text("".join(lines[file::files]))
    chain = {
        "preprocess": [slow("done", out, slow_from=slow_from if section == "preprocess" else ROWS)],
        "inference": [slow("Model", out, slow_from=slow_from if section == "inference" else ROWS) | {"batch_size": 5}],
    }
    source = {"kind": "jsonl", "path": f"{tmp_path}/in"}
    sink = {"kind": "parquet", "path": str(out), "seconds_per_part": 1}
    assert run_job(jobs.job(tmp_path, source=source, sink=sink, **chain))["rows_out"] == ROWS
    assert len(set((out / "slow").read_text().split())) < ROWS / 2
