"""What a step and a model print and log reaches the terminal, the log of the Prefect run and a file."""

import json
import textwrap
from pathlib import Path

import pytest
import yaml

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

    class Breaks:
        def __init__(self, file):
            self.weights = open(file)

        def __call__(self, batch):
            return batch
"""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, object]:
    (WORKER_PATH / "talking.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n1\n2\n3\n")
    return {
        "name": "talks",
        "source": {"kind": "csv", "path": "in"},
        "preprocess": [{"kind": "python", "target": "talking:clean"}],
        "inference": [{"kind": "python", "target": "talking:Talks"}],
        "sink": {"kind": "parquet", "path": "out"},
    }


def test_what_is_printed_and_logged_reaches_terminal_prefect_and_the_file_of_the_receipt(
    overnight: Overnight, prefect_api: str, job: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "in/a.csv").write_text("x\n1\n2\n5\n")
    checks = {"python": "talking:check", "max_quarantined": 0.5}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"checks": checks}))
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
    row = "quarantined: a.csv#2 in infer: ValueError: five (talking.py:22, in __call__)"
    wait_for("the quarantined row in the log of a Prefect task", lambda: row in in_prefect(), 20)


def says(shown: str, source: str, text: str) -> bool:
    return any(source in line and line.endswith(f"] {text}") for line in shown.splitlines())


def test_a_failed_run_names_its_file_too_and_without_v_the_terminal_stays_quiet(
    overnight: Overnight, job: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "in/a.csv").write_text("x\n5\n")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"checks": {"max_quarantined": 0}}))
    done = overnight("run", "job.yaml")
    assert done.returncode == 1
    assert "cleaning" not in done.stderr
    failure = json.loads((tmp_path / "out/_overnight/all/failure.json").read_text())
    assert "INFO talking: loaded" in (tmp_path / failure["logs"]).read_text()


@pytest.mark.slow
def test_a_model_that_cannot_be_made_is_one_message_without_a_traceback(
    overnight_process: Overnight, job: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "talking.py").write_text((WORKER_PATH / "talking.py").read_text())
    model = {"kind": "python", "target": "talking:Breaks", "kwargs": {"file": "none"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"inference": [model]}))
    done = overnight_process("run", "job.yaml")
    assert done.returncode == 1
    says = "talking:Breaks: __init__ raised FileNotFoundError: [Errno 2] No such file or directory: 'none'"
    assert done.stderr.count(says) == 1
    assert "Unhandled error" not in done.stderr
    assert "Traceback" not in done.stderr
