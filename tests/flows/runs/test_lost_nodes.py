"""What a run records about the nodes of its cluster, which is a list here. `tests/chaos/` has real clusters."""

from pathlib import Path
from typing import Any

import pytest
import ray

from overnight.flows.runs import lost_nodes
from overnight.flows.runs.lost_nodes import lost_nodes_recorded
from overnight.tasks.state.run import read_json, write_json
from overnight.tasks.workers import supervisor
from tests.chaos.runs import wait_for
from tests.tasks.resources.test_cluster import node
from tests.tasks.runs import make_run


class Recorded:
    """The nodes of a cluster, and what is recorded about them."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.incidents: list[tuple[str, str]] = []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded()
    monkeypatch.setattr(ray, "nodes", lambda: found.nodes)
    monkeypatch.setattr(lost_nodes, "is_started_here", lambda: False)
    monkeypatch.setattr(lost_nodes, "SECONDS_BETWEEN", 0.01)
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
