"""What all tests share: one Ray of two CPUs, one Prefect server, one S3 server, and real data where there is some."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from overnight.flows.runs.local_ray import WORKER_IMPORTS
from overnight.tasks.workers import fork_server
from tests import object_stores

pytest_plugins = ["tests.chaos.moments", "tests.ends_with_tests", "tests.without_torch"]

# The same examples every time: a failure here is of the change, never of the day.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

# Modules that tests write for workers to import: it must be on the path before a worker starts.
WORKER_PATH = Path(tempfile.mkdtemp(prefix="overnight-tests-"))
CANARY = "canary7f3a"  # a secret that no test may find; workers have it in their environment
COMMAND_FOLDER = WORKER_PATH / "folder-of-the-command"  # a link, where tests/warm_commands.py runs one


@pytest.fixture(autouse=True)
def _own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test imports from its folder ends with it: the next test has modules of the same names in another one."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    folders = str(tmp_path_factory.getbasetemp())
    sys.path[:] = [entry for entry in sys.path if entry in path or not entry.startswith(folders)]
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folders):
            del sys.modules[name]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, empty as yet, in which the jobs that ship find data and models: what they name is set here."""
    folder = tmp_path_factory.mktemp("demo") / ".demo"
    os.environ.update(
        OVERNIGHT_DEMO=str(folder),
        OVERNIGHT_BUCKET="overnight",
        DOGGOS_OUTPUT=str(folder / "predictions/doggos"),
        OPENAI_API_KEY="none",
        CANARY_KEY=CANARY,
    )
    return folder


@pytest.fixture(scope="session")
def ray_session(s3: Any, prefect_api: str, demo: Path) -> Iterator[None]:
    """A local Ray with two CPUs, with GPUs and NPUs that it only declares, and a folder of its own.

    The servers and the demo's folder are there before, so that workers have their addresses in the environment.
    """
    import ray

    ours = (str(WORKER_PATH), str(COMMAND_FOLDER), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, ours))
    sys.path.append(str(WORKER_PATH))
    if not COMMAND_FOLDER.is_symlink():  # Python never looks again in a folder of the path that was not there
        COMMAND_FOLDER.symlink_to(WORKER_PATH)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - a lower one starves beside tests that compute
    private = tempfile.mkdtemp(prefix="ray-")
    folder = os.environ["TESTS_RAY_FOLDER"] = f"{private}/s"  # Ray opens it to everyone
    os.environ["OVERNIGHT_MODEL_CACHE"] = f"{folder}/models"  # workers have it too
    settings = {"include_dashboard": False, "log_to_driver": False, "namespace": "prefect", "_temp_dir": folder}
    with fork_server.started():
        fork_server.preload(WORKER_IMPORTS)
        ray.init(num_cpus=2, num_gpus=2, resources={"NPU": 2, "accelerator_type:T4": 1}, **settings)
        yield
        ray.shutdown()
    shutil.rmtree(private, ignore_errors=True)


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a real server with a home of its own, ended with the session."""
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    from overnight.flows.runs.local_server import prefect_server

    home = tmp_path_factory.mktemp("prefect")
    before = os.environ.get("PREFECT_HOME")
    os.environ["PREFECT_HOME"] = str(home)
    try:
        with temporary_settings({PREFECT_HOME: home}, restore_defaults={PREFECT_API_URL}), prefect_server() as url:
            yield url
    finally:
        subprocess.run([sys.executable, "-m", "prefect", "server", "stop"], check=False, timeout=60)
        os.environ.pop("PREFECT_HOME")
        if before:
            os.environ["PREFECT_HOME"] = before


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch computes with one thread, because several wait for each other where workers keep all CPUs busy."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def google() -> Iterator[str]:
    """`gs://BUCKET`. One a session, for the driver keeps what it knows of a server; likewise `azure`."""
    with object_stores.google() as uri:
        yield uri


@pytest.fixture(scope="session")
def azure() -> Iterator[str]:
    """`abfs://BUCKET`."""
    with object_stores.azure() as uri:
        yield uri


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server on this machine: a SQLAlchemy URL, in which only the name of the database is missing.

    Its user and password are in the tests' environment as PGUSER and PGPASSWORD, its address as PGHOST and PGPORT.
    """
    from tests.postgres import postgres_server

    with postgres_server() as address:
        yield f"postgresql+psycopg://${{PGUSER}}:${{PGPASSWORD}}@{address}/"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real photos, CIFAR-10 images, news texts and spoken digits, which lie beside the checkout where there are any."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the shared data folder beside the checkout")
    return folder


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    """A boto3 client of an S3 server on this machine, with the environment set so that everything else finds it too.

    It starts before Ray does, so that workers have the environment.
    """
    import boto3

    port = object_stores.free_port()
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_DEFAULT_REGION="us-east-1",
    )
    with object_stores.served([sys.executable, str(Path(__file__).with_name("s3_server.py")), str(port)], port):
        yield boto3.client("s3")
