"""What a model has done is staged while it goes on, however slow it is and however many rows lie in one file."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.chaos.runs import in_background, wait_for
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob

ROWS, ROWS_A_PART, SECONDS_A_ROW = 60, 5, 0.2
MODEL = """
import time


class Slow:
    def __init__(self, trace):
        self.trace = trace

    def __call__(self, batch):
        for x in batch["x"]:
            time.sleep(0.2)
            with open(self.trace, "a") as trace:
                trace.write(f"{x}\\n")
        return {"y": batch["x"] * 2}
"""


@pytest.mark.slow
def test_rows_of_a_slow_model_are_staged_while_it_works_on_the_others_of_their_file(
    run_job: RunJob, tmp_path: Path
) -> None:
    (WORKER_PATH / "slow_by_row.py").write_text(textwrap.dedent(MODEL))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps({"x": x}) + "\n" for x in range(ROWS)))
    model = {"kind": "python", "target": "slow_by_row:Slow", "kwargs": {"trace": str(tmp_path / "trace")}}
    job = {
        "name": "slow",
        "source": {"kind": "jsonl", "path": str(tmp_path / "in")},
        "inference": [model | {"batch_size": ROWS_A_PART, "workers": 1}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": ROWS_A_PART},
    }

    def seen() -> int:
        return len((tmp_path / "trace").read_text().splitlines()) if (tmp_path / "trace").exists() else 0

    with in_background(run_job, job) as running:
        staged = wait_for("a part", lambda: running.done() or list((tmp_path / "out").rglob("*.part")))
        assert staged is not True, running.result()
        assert seen() < ROWS
        assert running.result(120)["rows_out"] == ROWS
