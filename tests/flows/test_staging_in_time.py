"""What is done is staged while the rest is worked on, whatever is slow and however many rows lie in one file."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

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
    ("what", "files"),
    [
        *((what, 1) for what in ("model-of-a-wrong-rate", "step-of-a-wrong-rate", "step-and-model")),
        *((what, ROWS) for what in ("model", "step")),
    ],
)
def test_rows_that_are_done_are_staged_while_others_are_worked_on(
    what: str, files: int, run_job: RunJob, tmp_path: Path
) -> None:
    (WORKER_PATH / "slow_by_row.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    lines = [json.dumps({"x": x}) + "\n" for x in range(ROWS)]
    for file in range(files):
        (tmp_path / f"in/{file:03}.jsonl").write_text("".join(lines[file::files]))
    wrong = {"slow_from": ROWS_OF_A_SAMPLE}
    out = tmp_path / "out"
    stages = {
        "model": {"inference": [slow("Model", out) | {"batch_size": 5}]},
        "model-of-a-wrong-rate": {"inference": [slow("Model", out, **wrong) | {"batch_size": 5}]},
        "step": {"preprocess": [slow("done", out)]},
        "step-of-a-wrong-rate": {"preprocess": [slow("done", out, **wrong)]},
        "step-and-model": {"preprocess": [slow("done", out)], "inference": [slow("Model", out, slow_from=ROWS)]},
    }
    job = {
        "name": f"slow-{what}-{files}",
        "source": {"kind": "jsonl", "path": str(tmp_path / "in")},
        "sink": {"kind": "parquet", "path": str(out), "seconds_per_part": 1},
        **stages[what],
    }
    assert run_job(job)["rows_out"] == ROWS
    assert len(set((out / "slow").read_text().split())) < ROWS / 2
