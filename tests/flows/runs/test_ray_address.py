"""Addresses of a Ray cluster that a run can use, and those that it refuses before anything starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from prefect.settings import PREFECT_API_URL, temporary_settings

import overnight
from overnight.cli.main import main
from overnight.flows.runs.ray_address import check_ray_address
from overnight.flows.runs.task_runner import OvernightTaskRunner
from tests import jobs


@pytest.mark.parametrize("address", ["", "auto", "local", "head:6379", "127.0.0.1:6379", "[::1]:6379"])
def test_the_addresses_of_ray_s_own_protocol_pass(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    check_ray_address()


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "https://head"])
def test_other_protocols_are_refused_with_what_to_do(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(overnight.JobError, match=rf"RAY_ADDRESS: .* found {address}\. .*`ray job submit"):
        check_ray_address()


def test_a_run_a_served_job_and_a_flow_in_a_worker_are_refused_before_prefect_or_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    for module in ("overnight.api.local_run._server", "overnight.flows.runs.local_server.prefect_server"):
        monkeypatch.setattr(module, lambda *_, **__: pytest.fail("a server started"))
    path = jobs.write_job(tmp_path / "job.yaml")
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        with pytest.raises(overnight.JobError, match="RAY_ADDRESS"):
            overnight.run(path, partition="2026-01-02", progress=False)
        served = CliRunner().invoke(main, ["serve", str(path)])
    assert (served.exit_code, "RAY_ADDRESS" in served.output) == (2, True)
    with pytest.raises(overnight.JobError, match="ray://head"):
        OvernightTaskRunner(address="ray://head:10001").__enter__()


def test_a_process_that_uses_ray_client_already_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.util.client import ray as client

    monkeypatch.setattr(client, "is_connected", lambda: True)
    with pytest.raises(overnight.JobError, match=r"ray\.init: .* found ray://"):
        check_ray_address()
