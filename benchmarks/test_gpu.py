"""Test the measurement of a GPU without one, on few rows: every contender with an installed library does all of them.

Run it by hand, `python -m pytest benchmarks/test_gpu.py`, because the tests' environment lacks the libraries of peers.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("model", ["tiny", "minilm", "whisper-tiny", "tiny-llama"])
def test_a_model_is_measured_alone_and_in_each_contender(model: str, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--model", model, "--device", "cpu", "--dtype", "float32"]
    command += ["--rows", "60", "--seconds", "1000", "--json", str(tmp_path / "found.json")]
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1100, check=False)
    assert (tmp_path / "found.json").exists(), done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    problems = [entry.get("problem", "") for entry in found["runs"].values()]
    assert all(not problem or problem.startswith("not run: ") for problem in problems), done.stderr[-3000:]
    overnight = next(entry for label, entry in found["runs"].items() if label.startswith("Overnight"))
    assert overnight["rows_per_second"] > 0
    assert overnight["batch"]
    assert found["model_only"]["float32"] > 0
