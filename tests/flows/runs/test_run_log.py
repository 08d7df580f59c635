"""A run's log gets the output of user code, the first quarantined rows, and the nodes that ended.

The cluster of these tests is a list. `tests/chaos/` has real clusters.
"""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import ray

from overnight.flows.runs import run_log
from overnight.flows.runs.run_log import lost_nodes_recorded
from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import read_json, write_json
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import QuarantineAllowed, Supervisor
from tests import jobs
from tests.chaos.runs import wait_for
from tests.conftest import WORKER_PATH
from tests.flows.conftest import Overnight, RunJob, parquet, write_parquet
from tests.prefect_api import ask
from tests.tasks.resources.test_cluster import node
from tests.tasks.runs import make_run

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


@pytest.mark.parametrize(("rows", "logged"), [(0, 0), (3, 3), (50, 50), (70, 51)])
def test_the_first_rows_are_logged_once_and_then_their_number(
    rows: int, logged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reports = Supervisor()
    reports.on(QuarantineAllowed(100, already=7, of="of all rows"))
    stop = threading.Event()
    looks = iter([20, 60, 70])

    def report_more(*since: int) -> tuple[int, list[dict[str, str]]]:
        """Report a few rows before each look, and end the run before the last."""
        upto = min(rows, next(looks))
        for row in range(reports.quarantined_since(0, 0)[0], upto):
            details = {"row_id": f"{row}.png", "stage": "infer", "error_type": "ValueError", "error_message": "no"}
            assert reports.quarantined([row], [0], [details]) is None
        if upto in (rows, 60):
            stop.set()
        return reports.quarantined_since(*since)

    monkeypatch.setattr(supervisor, "ask", lambda run, question, *since: report_more(*since))
    monkeypatch.setattr(run_log, "SECONDS_BETWEEN", 0)
    with caplog.at_level(logging.WARNING):
        run_log._follow_quarantine(make_run(tmp_path), logging.getLogger("of the run"), stop)
    expected = [f"quarantined: {row}.png in infer: ValueError: no" for row in range(min(rows, 50))]
    if rows > 50:
        expected.append("70 rows were quarantined; the first 50 are logged")
    assert caplog.messages == expected
    assert len(expected) == logged


class Recorded:
    """The nodes of a cluster, and what is recorded about them."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.incidents: list[tuple[str, str]] = []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded()
    monkeypatch.setattr(ray, "nodes", lambda: found.nodes)
    monkeypatch.setattr(run_log, "is_started_here", lambda: False)
    monkeypatch.setattr(run_log, "SECONDS_BETWEEN", 0.01)
    monkeypatch.setattr(supervisor, "report", lambda run, stage, what: found.incidents.append((stage, what)))
    return found


def test_a_node_that_ends_during_the_run_is_recorded_once(cluster: Recorded, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    cluster.nodes = [node("a", True), node("b", True)]
    with lost_nodes_recorded(run):
        wait_for("the nodes", lambda: read_json(run.nodes) == {"alive": ["id-a", "id-b"]})
        cluster.nodes = [node("a", True), node("b", False, 2, "killed")]
        wait_for("the nodes that are left", lambda: read_json(run.nodes) == {"alive": ["id-a"]})
    [(stage, what)] = cluster.incidents
    assert stage == "plan"  # before the first task
    assert what.startswith("node b at 10.0.0.7 ended (killed); other nodes take its work (seen at 20")
    assert not run.nodes.exists()


def test_a_run_records_what_ended_with_the_process_of_the_attempt_before(cluster: Recorded, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_json(run.nodes, {"alive": ["id-old"]})  # left by a process that died
    cluster.nodes = [node("new", True)]
    with lost_nodes_recorded(run):
        wait_for("the nodes", lambda: read_json(run.nodes) == {"alive": ["id-new"]})
    [(_, what)] = cluster.incidents
    assert what.startswith("no node of the attempt before is left")


DIES_ONCE = """
import os
from pathlib import Path


class DiesOnce:
    def __init__(self, mark):
        self.mark = Path(mark)

    def __call__(self, batch):
        if 7 in batch["x"] and not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return {"y": batch["x"]}
"""


@pytest.mark.slow
def test_a_run_that_fails_keeps_its_incidents_in_its_record_and_on_its_page(run_job: RunJob, tmp_path: Path) -> None:
    (WORKER_PATH / "dies_once.py").write_text(DIES_ONCE)
    write_parquet(tmp_path / "in/a.parquet", x=list(range(20)))
    model = {"kind": "python", "target": "dies_once:DiesOnce", "kwargs": {"mark": str(tmp_path / "mark")}}
    job = {
        "name": "dying",
        "source": parquet(tmp_path),
        "inference": [model | {"batch_size": 5}],
        "checks": {"min_rows": 100},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    with pytest.raises(CheckFailed, match=r"checks\.min_rows"):
        run_job(job)
    ledger = tmp_path / "out/_overnight/all"
    incidents = json.loads((ledger / "failure.json").read_text())["incidents"]
    assert "infer" in {incident["stage"] for incident in incidents}, incidents
    page = (ledger / "report.html").read_text()
    assert all(incident["what"] in page for incident in incidents)
