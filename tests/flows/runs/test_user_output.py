"""What a step and a model print and log reaches the terminal, the log of the Prefect run and a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.chaos.runs import wait_for
from tests.conftest import WORKER_PATH
from tests.flows.conftest import Overnight
from tests.prefect_api import ask

MODULE = """
import logging
import os
import subprocess

def check(receipt, previous, rows):
    print("checking")

def clean(batch):
    print("cleaning")
    return batch

class Talks:
    def __init__(self):
        logging.getLogger("talking").info("loaded")

    def __call__(self, batch):
        print("asked https://me:secret@host/")
        os.write(1, b"from C\\n")
        subprocess.run(["echo", "from a child"])
        if (batch["x"] == 5).any():
            raise ValueError("five")
        return {"y": batch["x"]}
"""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """The sections of a job whose model fails for the row 5."""
    (WORKER_PATH / "talking.py").write_text(MODULE)
    (tmp_path / "in.csv").write_text("x\n1\n2\n5\n")
    return {
        "source": {"kind": "csv", "path": "in.csv"},
        "preprocess": [{"kind": "python", "target": "talking:clean"}],
        "inference": [{"kind": "python", "target": "talking:Talks"}],
    }


def says(shown: str, source: str, text: str) -> bool:
    return any(source in line and line.endswith(f"] {text}") for line in shown.splitlines())


@pytest.mark.slow
def test_what_is_printed_and_logged_reaches_terminal_prefect_and_the_file_of_the_receipt(
    overnight: Overnight, prefect_api: str, job: dict[str, Any], tmp_path: Path
) -> None:
    jobs.write_job(tmp_path / "job.yaml", **job, checks={"python": "talking:check", "max_quarantined": 0.5})
    done = overnight("run", "job.yaml", "-v", "--json")
    assert done.returncode == 0, done.stderr
    kept = (tmp_path / json.loads(done.stdout)["logs"]).read_text()

    def in_prefect() -> str:
        found = ask(prefect_api, "/logs/filter", {"limit": 200, "sort": "TIMESTAMP_DESC"})
        return "\n".join(log["message"] for log in found if log["task_run_id"])

    for source, text in (
        ("preprocess talking:clean", "cleaning"),
        ("infer talking:Talks", "INFO talking: loaded"),
        ("infer talking:Talks", "asked https://***:***@host/"),
        ("infer talking:Talks", "from C"),
        ("infer talking:Talks", "from a child"),
        ("write talking:check", "checking"),
    ):
        assert says(kept, source, text)
        assert says(done.stderr, source, text)
        assert kept.count(f"] {text}\n") == done.stderr.count(f"] {text}\n"), kept
        wait_for(f"{text} in the log of a Prefect task", lambda: says(in_prefect(), source, text), 20)  # noqa: B023
    row = "quarantined: in.csv#2 in infer: ValueError: five (talking.py:22, in __call__)"
    wait_for("the quarantined row in the log of a Prefect task", lambda: row in in_prefect(), 20)


@pytest.mark.slow
def test_a_failed_run_names_its_file_too_and_without_v_the_terminal_stays_quiet(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    jobs.write_job(tmp_path / "job.yaml", **job, checks={"max_quarantined": 0})
    done = overnight("run", "job.yaml")
    assert done.returncode == 1
    assert "cleaning" not in done.stderr
    failure = json.loads((tmp_path / "out/_overnight/all/failure.json").read_text())
    assert "INFO talking: loaded" in (tmp_path / failure["logs"]).read_text()
