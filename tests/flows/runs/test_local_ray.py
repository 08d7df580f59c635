"""The Ray of a run: its address is checked, its workers have their modules, and a local one is closed to others."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

import overnight
from overnight.flows.job.model import Job
from overnight.flows.runs.local_ray import (
    REFUSALS,
    S3_IMPORTS,
    WORKER_IMPORTS,
    WRITER_IMPORTS,
    LocalRay,
    RayEnded,
    check_ray_address,
    first_imports,
    fork_server_for_local_ray,
    import_all,
    session_folder,
)
from overnight.tasks.errors import JobError
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import in_process_of_its_own
from tests import jobs

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
STARTED = """
import json, os, sys
os.umask(0o022)
from overnight.flows.runs.local_ray import start_local_ray
import ray
context = start_local_ray(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
os.environ["PYTHONPATH"] = ""
ray.get(ray.remote(lambda: 1).remote())
print(json.dumps(dict(context.address_info)), flush=True)
sys.stdin.read()
"""
# The first raylet is stopped as it starts, as on a machine that is too busy.
DELAYED = """
import sys, threading, time
import psutil
def stop_first_raylet():
    while True:
        for child in psutil.Process().children():
            if child.name() == "raylet":
                return child.suspend()
        time.sleep(0.02)
threading.Thread(target=stop_first_raylet, daemon=True).start()
from overnight.flows.runs.local_ray import start_local_ray
import ray
start_local_ray(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
names = [child.name() for child in psutil.Process().children()]
print(ray.get(ray.remote(lambda: 5).remote()), names.count("gcs_server"), names.count("raylet"))
"""
ENTERED = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("entered", ray.get(ray.remote(lambda: 1).remote()))
"""
# An agent of Ray takes requests at these paths, and runs what they hold.
ANSWERED = """
import sys, urllib.error, urllib.request
for port in sys.argv[1:]:
    for path in ("api/job_agent/jobs/", "get_or_create_runtime_env"):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", b"{}", timeout=10)
            print(port, path, 200)
        except urllib.error.HTTPError as error:
            print(port, path, error.code)
        except Exception:
            pass  # no HTTP
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, short and open to everyone as /tmp is: those of pytest are its user's alone."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def a_local_ray(temporary: Path) -> Iterator[tuple[psutil.Process, dict[str, Any]]]:
    """The process that started a Ray as a run does, and the addresses of that Ray."""
    closed = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ADDRESS", "RAY_TMPDIR")
    environment = {name: value for name, value in os.environ.items() if name not in closed}
    with subprocess.Popen(
        [sys.executable, "-c", STARTED],
        env=environment | {"TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            yield psutil.Process(process.pid), json.loads(process.stdout.readline())
        finally:
            process.communicate("")


def as_nobody(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of Python as a user without rights, who has a token of Ray of their own."""
    environment = {"HOME": "/nonexistent", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 64}
    environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise Ray replaces 127.0.0.1
    command = [*NOBODY, sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_another_user_reads_nothing_of_a_local_ray_and_runs_no_code_in_it(temporary: Path) -> None:
    with a_local_ray(temporary) as (process, addresses):
        tree = [process, *process.children(recursive=True)]
        listeners = [
            (each.name(), connection.laddr)
            for each in tree
            for connection in each.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert len(listeners) >= 6  # of the driver, the GCS, the raylet, its agents and a worker
        assert [(name, ip) for name, (ip, _) in listeners if ip.removeprefix("::ffff:") != "127.0.0.1"] == []
        [folder] = temporary.glob("ray-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        session = Path(addresses["session_dir"])
        assert session.is_relative_to(folder)
        assert list((session / "logs").iterdir())
        if os.geteuid():
            pytest.skip("only root can be another user")
        listed = subprocess.run([*NOBODY, "ls", str(session)], capture_output=True, text=True, check=False)
        assert "Permission denied" in listed.stderr
        entered = as_nobody(ENTERED, addresses["address"])
        assert "entered" not in entered.stdout
        assert "AuthenticationError" in entered.stderr
        answered = as_nobody(ANSWERED, *(str(port) for _, (_, port) in listeners))
        assert answered.stderr == ""
        assert {line.split()[-1] for line in answered.stdout.splitlines()} <= {"401", "403", "404", "405"}
        assert " 401" in answered.stdout


def test_the_folder_of_a_local_ray_is_its_users_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setenv("RAY_TMPDIR", str(temporary / "made"))
    own = temporary / f"made/ray-{os.geteuid()}"
    own.mkdir(parents=True)
    own.chmod(0o777)
    assert session_folder() == f"{own}/s"
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_ray_that_takes_longer_than_ray_allows_is_started_once_more_and_leaves_no_process() -> None:
    done = subprocess.run([sys.executable, "-c", DELAYED], check=False, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["5", "1", "1"], done.stderr[-2000:]
    assert "It is started once more" in done.stderr


@pytest.mark.parametrize("planted", ["a link", "a folder of another user", "a file"])
def test_what_another_user_planted_is_not_used(planted: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(temporary))
    name, elsewhere = temporary / f"ray-{os.geteuid()}", temporary / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    if planted == "a link":
        name.symlink_to(elsewhere)
    elif planted == "a file":
        name.touch()
    elif os.geteuid():
        pytest.skip("only root can make a folder of another user")
    else:
        name.mkdir()
        os.chown(name, 65534, 65534)
    folder = Path(session_folder()).parent
    assert (folder.parent, folder != name) == (temporary, True)
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (os.geteuid(), 0o700)
    assert (elsewhere.stat().st_mode & 0o777, list(elsewhere.iterdir())) == (0o755, [])


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 60)))
    with pytest.raises(JobError, match=r"at most \d\d bytes in its path, found .*xxx. Set RAY_TMPDIR to a shorter one"):
        session_folder()


def test_a_gcs_that_refuses_several_connections_in_a_row_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        gcs = LocalRay(address)
        for _ in range(REFUSALS + 1):
            gcs.check()
    for _ in range(REFUSALS - 1):
        gcs.check()
    with pytest.raises(RayEnded) as ended:
        gcs.check()
    assert (ended.value.error_type, address in ended.value.message) == ("RayEnded", True)


def test_the_ray_of_a_cluster_is_not_checked() -> None:
    for _ in range(REFUSALS + 1):
        LocalRay("").check()


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
    # Here, because a forked worker of another test imports this file, and must not have Prefect.
    from click.testing import CliRunner
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from overnight.cli.main import main
    from overnight.flows.runs.task_runner import OvernightTaskRunner

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


READ, TRY = "overnight.tasks.ingest.reading.read_units", "overnight.tasks.infer.trial"


def loaded(*modules: str) -> list[bool]:
    """Return for each module whether this process has imported it."""
    return [module in sys.modules for module in modules]


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without Ray and without the session's fork server."""
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the fork server runs on Linux only")
def test_a_forked_worker_has_the_modules_that_read_rows_and_try_models_and_no_prefect(no_ray: None) -> None:
    with fork_server_for_local_ray():
        found = in_process_of_its_own(partial(loaded, *WORKER_IMPORTS, READ, TRY, "prefect"), print)
    assert found == [*[True] * len(WORKER_IMPORTS), True, True, False]


def test_the_switch_of_the_fork_server_is_respected(no_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fork_server.ADDRESS, fork_server.OFF)
    with fork_server_for_local_ray():
        assert not fork_server.is_there()


@pytest.mark.parametrize(("folder", "modules"), [("s3://bucket/photos", [S3_IMPORTS]), ("/data/photos", [])])
def test_the_client_of_s3_is_imported_early_if_the_job_names_s3(folder: str, modules: list[str]) -> None:
    sink = {"kind": "parquet", "path": "/data/out"}
    job = Job.model_validate({"name": "photos", "source": {"kind": "images", "path": folder}, "sink": sink})
    assert first_imports(job) == [*WORKER_IMPORTS, *modules]


def test_what_is_imported_early_is_there() -> None:
    import_all([S3_IMPORTS, WRITER_IMPORTS])
    assert loaded(S3_IMPORTS, WRITER_IMPORTS, "s3fs") == [True, True, True]


@pytest.mark.parametrize(
    ("process", "heavy"),
    [
        ("overnight.api.local_run", ("ray.data", "pandas", "torch")),  # of a flow
        ("overnight.tasks.workers.supervisor", ("ray", "pyarrow", "numpy")),
        (", ".join(WORKER_IMPORTS), ("prefect", "ray.data", "pandas", "s3fs", "torch")),
    ],
)
def test_a_process_does_not_import_what_only_others_need(process: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {process}; print(sorted({set(heavy)} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_writer_that_is_imported_early_is_the_sink_that_stages_parts() -> None:
    from overnight.tasks.write.stream.staging import Staging

    assert Staging.__module__ == WRITER_IMPORTS
