"""The task runner's promises, on a real Ray and a real Prefect server."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.settings import PREFECT_API_KEY, PREFECT_API_URL, temporary_settings

from overnight.flows.runs.task_runner import OvernightTaskRunner, near_server
from overnight.flows.runs.working_folder import working_folder
from overnight.tasks.errors import OvernightError


@task(cache_policy=NO_CACHE)
def reserved() -> dict[str, float]:
    import ray

    return dict(ray.get_runtime_context().get_assigned_resources())


class ContextTeller(OvernightTaskRunner):
    """Answers with what was sent along, instead of running the task."""

    @staticmethod
    def _run_prefect_task(*_: Any, context: dict[str, Any], **__: Any) -> str:
        return repr(context)


def test_a_prefect_task_reserves_no_cpu(prefect_api: str, ray_session: None) -> None:
    @flow(task_runner=OvernightTaskRunner(), persist_result=False)
    def probe() -> dict[str, float]:
        return reserved.submit().result()

    assert probe().get("CPU", 0) == 0


def test_a_task_stays_on_the_node_that_alone_reaches_the_server_and_runs_on_any_if_all_do(ray_session: None) -> None:
    import ray

    [node] = ray.nodes()
    for host in ("127.0.0.1", "localhost", "[::1]"):
        strategy = near_server(f"http://{host}:4200/api")["scheduling_strategy"]
        assert (strategy.node_id, strategy.soft) == (node["NodeID"], False)
    assert near_server("http://prefect-server.prefect:4200/api") == {}


def test_no_setting_travels_with_a_task(prefect_api: str, ray_session: None) -> None:
    @flow(task_runner=ContextTeller(), persist_result=False)
    def probe() -> str:
        return reserved.submit().result()  # type: ignore[return-value]

    with temporary_settings({PREFECT_API_KEY: "the-secret-key"}):
        sent = probe()
    assert "flow_run_context" in sent
    assert "the-secret-key" not in sent


def test_the_first_task_logs_what_was_sent_to_the_cluster(
    prefect_api: str, ray_session: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model.py").write_text("")
    (tmp_path / "photo.png").write_text("")

    class OnCluster(ContextTeller):
        _sent = working_folder(tmp_path)

    @flow(task_runner=OnCluster(), persist_result=False)
    def probe() -> None:
        for _ in range(2):
            reserved.submit().result()

    probe()
    assert [line for line in caplog.messages if line.startswith("sent to")] == [
        f"sent to the cluster: 1 file of {tmp_path}, 0.0 MiB; left out: 1 x .png"
    ]


def test_without_a_server_nothing_starts() -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        runner = OvernightTaskRunner()
        with pytest.raises(OvernightError, match="PREFECT_API_URL"):
            runner._connect()


@pytest.mark.slow
def test_a_ray_that_does_not_start_is_a_sentence_with_what_to_do(prefect_api: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, where Ray would make its folder")
    script = f"""
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.tasks.errors import OvernightError

try:
    OvernightTaskRunner(init_kwargs={{"_temp_dir": {str(tmp_path / "taken")!r}}}).__enter__()
except OvernightError as error:
    print(error)
"""
    environment = {**os.environ, "PREFECT_API_URL": prefect_api, "RAY_ADDRESS": ""}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("expected Ray to start on this machine, found: "), done.stderr[-2000:]
    assert "or start Ray yourself" in done.stdout
