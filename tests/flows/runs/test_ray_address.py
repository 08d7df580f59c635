"""Addresses of a Ray cluster that a run can use, and those that it refuses before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prefect.settings import PREFECT_API_URL, temporary_settings

import overnight
from overnight.flows.runs.ray_address import check_ray_address
from overnight.flows.runs.task_runner import OvernightTaskRunner

COMMAND = [sys.executable, "-c", "from overnight.cli.main import main; main(prog_name='overnight')"]
CLIENT = """
import ray
from ray.util.client import ray as client
from overnight.flows.runs.ray_address import check_ray_address

client.is_connected = lambda: True
check_ray_address()
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job in the working directory, and no Prefect server."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n1\n")
    written = {"name": "refused", "source": {"kind": "csv", "path": "in"}, "sink": {"kind": "csv", "path": "out"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(written))
    return tmp_path / "job.yaml"


@pytest.mark.parametrize("address", ["", "auto", "local", "head:6379", "127.0.0.1:6379", "[::1]:6379"])
def test_the_addresses_of_ray_s_own_protocol_pass(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    check_ray_address()


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "https://head"])
def test_other_protocols_are_refused_with_what_to_do(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(overnight.JobError, match=rf"expected HOST:PORT .* found {address}\. .*`ray job submit -- ove"):
        check_ray_address()


def test_a_run_is_refused_before_prefect_or_ray_starts(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    monkeypatch.setattr("overnight.api.local_run._server", lambda show: pytest.fail("a server started"))
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(overnight.JobError, match="RAY_ADDRESS: expected"),
    ):
        overnight.run(job, progress=False)


def test_serve_is_refused_before_a_server_starts(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    done = subprocess.run([*COMMAND, "serve", "job.yaml"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "RAY_ADDRESS: expected" in done.stderr


def test_a_flow_of_a_deployment_is_refused_in_its_worker() -> None:
    with pytest.raises(overnight.JobError, match="expected HOST:PORT"):
        OvernightTaskRunner(address="ray://head:10001").__enter__()


def test_a_process_that_uses_ray_client_already_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, timeout=60, check=False)
    assert "JobError: ray.init: expected HOST:PORT" in done.stderr
