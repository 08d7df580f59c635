"""Test the measurement of a GPU without one: the plan of the time, and that every contender does all of a few rows.

Run it by hand, `python -m pytest benchmarks/test_gpu.py`, because the tests' environment lacks the libraries of peers.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu import LEAST_SECONDS, STREAM_SECONDS, in_order, rows_for
from gpu_subjects import SUBJECTS, Run

BENCHMARKS = Path(__file__).resolve().parent


def test_the_first_two_contenders_of_each_model_come_before_all_others() -> None:
    order = [(model, run.label) for model, run in in_order(["clip-b-32", "vit-b-16"])]
    first, second = (run.label for run in SUBJECTS["clip-b-32"].runs[:2])
    assert order[:4] == [("clip-b-32", first), ("clip-b-32", second), ("vit-b-16", first), ("vit-b-16", second)]
    assert len(order) == len(set(order)) == 2 * len(SUBJECTS["clip-b-32"].runs)


def test_a_contender_has_its_start_and_then_a_stream_as_long_as_the_time_allows() -> None:
    run = Run("mine", "mine", share=0.5, start_seconds=60)
    assert [rows_for(run, 4000, left) for left in (500, 60 + STREAM_SECONDS)] == [34_000, 34_000]
    assert rows_for(run, 4000, 60 + LEAST_SECONDS) == 16_000
    assert rows_for(run, 4000, 60 + LEAST_SECONDS - 0.1) == 0
    assert rows_for(run, 10, 500) == 85


def test_nine_minutes_have_room_for_two_contenders_of_each_of_two_models() -> None:
    needed = [run.start_seconds + STREAM_SECONDS for _, run in in_order(["clip-b-32", "vit-b-16"])[:4]]
    assert sum(needed) < 540 - 120  # what limits them, and the start and the end of the script


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("model", ["tiny", "minilm", "whisper-tiny", "tiny-llama"])
def test_a_model_is_measured_alone_and_in_each_contender(model: str, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--model", model, "--device", "cpu", "--dtype", "float32"]
    command += ["--rows", "60", "--seconds", "1000", "--json", str(tmp_path / "found.json")]
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1100, check=False)
    assert (tmp_path / "found.json").exists(), done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    found = found["models"][model]
    problems = [entry.get("problem", "") for entry in found["runs"].values()]
    assert all(not problem or problem.startswith("not run: ") for problem in problems), done.stderr[-3000:]
    overnight = next(entry for label, entry in found["runs"].items() if label.startswith("Overnight"))
    assert overnight["rows_per_second"] > 0
    assert overnight["batch"]
    assert found["model_only"]["float32"] > 0
