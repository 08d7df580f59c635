"""What all tests share: one Ray of two CPUs, and the folder of real data where there is one."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Modules that tests write for workers to import: it must be on the path before a worker starts.
WORKER_PATH = Path(tempfile.mkdtemp(prefix="overnight-tests-"))


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A local Ray with two CPUs and a folder of its own, shared by the session."""
    import ray

    os.environ["PYTHONPATH"] = os.pathsep.join([str(WORKER_PATH), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path.append(str(WORKER_PATH))
    os.environ["RAY_AUTH_MODE"] = "disabled"
    folder = tempfile.mkdtemp(prefix="ray-")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="prefect", _temp_dir=folder)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real photos, CIFAR-10 images, news texts and spoken digits, which lie beside the checkout where there are any."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the shared data folder beside the checkout")
    return folder
