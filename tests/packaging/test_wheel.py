"""The wheel alone is enough: every command works from it in a folder that holds nothing of a checkout.

The environment is a new one that has the wheel installed. Torch, Ray and Prefect come from the environment of the tests
through a .pth file, because installing them again takes minutes. That hides no missing declaration: here the libraries
of all extras are blocked, and test_declared.py checks that the base declares the others. The editable Overnight stays
hidden, because Python reads no .pth files in a folder that a .pth file names.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from overnight.tasks.config.extras import EXTRAS
from tests import prefect_api
from tests.packaging.test_declared import BROUGHT_BY_RAY, ROOT

pytestmark = pytest.mark.slow

COMMAND_SECONDS = 300
WHEEL_BYTES = 7 << 18  # 1.75 MiB, of which the documentation takes a third
LOGIN = "overnight:a password"
# The server of these commands needs a login and CSRF tokens, as the one of docker-compose.yml does.
PROTECTED = {
    "PREFECT_SERVER_API_AUTH_STRING": LOGIN,
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "PREFECT_API_AUTH_STRING": LOGIN,
}
ask = functools.partial(prefect_api.ask, login=LOGIN)

AUTOMATIONS = ("crashed-container", "crashed-run", "run-that-never-began")
AUTOMATION_NAMES = (*(f"{name}-starts-again" for name in AUTOMATIONS), "silent-run-has-crashed")
FILES = [f"automations/{name}.yaml" for name in AUTOMATION_NAMES] + ["prefect.yaml"]
SHIPPED = {  # by the name below overnight/flows/deploy/shipped
    **{name: f"deployments/{name}" for name in FILES},
    **{f"jobs/{file.name}": f"deployments/jobs/{file.name}" for file in ROOT.glob("deployments/jobs/*.yaml")},
    **{name: name for name in ("constraints.txt", "constraints-extras.txt", "constraints-torch.txt")},
}
BUILD_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


def pages() -> set[str]:
    """The pages of docs/ that are written by hand, by their paths: those that git lists."""
    listing = subprocess.run(["git", "ls-files", "-z", "docs"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listing.stdout.split("\0") if name.endswith(".md")}


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert not done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made of the source distribution. It is built from a copy: setuptools writes beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "tests", "benchmarks")
    shutil.copytree(ROOT, folder / "checkout", symlinks=True, ignore=ignored)
    subprocess.run([sys.executable, "-c", BUILD_SDIST, folder], cwd=folder / "checkout", check=True, timeout=120)
    [source] = folder.glob("overnight-*.tar.gz")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    [found] = folder.glob("overnight-*.whl")
    return found


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own, called in `folder`."""

    environment: Path
    folder: Path
    home: Path

    def variables(self) -> dict[str, str]:
        ours = ("PREFECT", "RAY", "PYTHON", "OVERNIGHT", "AWS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**kept, **PROTECTED, "PREFECT_HOME": str(self.home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        program, *arguments = command
        options = {"cwd": self.folder, "env": self.variables(), "text": True, **options}
        return subprocess.Popen([str(self.environment / "bin" / program), *arguments], **options)

    def ended(self, *command: str, **options: Any) -> tuple[int, str, str]:
        """What the command exits with, and what it writes to stdout and stderr."""
        with self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as running:
            try:
                told, said = running.communicate(timeout=COMMAND_SECONDS)
            finally:
                running.kill()
        return running.returncode, told, said

    def run(self, *command: str) -> str:
        """What the command writes to stdout."""
        code, told, said = self.ended(*command)
        assert code == 0, told + said
        return told

    def json(self, *command: str) -> Any:
        return json.loads(self.run(*command, "--json"))

    @property
    def api(self) -> str:
        return str(json.loads((self.home / "overnight-server.json").read_text())["url"])


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    here = tmp_path_factory.mktemp("installed")
    environment = here / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    blocked = sorted(EXTRAS.keys() - BROUGHT_BY_RAY)
    (packages / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({blocked})\n")
    pip("--python", str(environment / "bin/python"), "install", "--no-deps", "--no-index", str(wheel))
    (here / "empty").mkdir()
    made = Installed(environment, here / "empty", here / "prefect")
    try:
        yield made
    finally:
        made.start("python", "-m", "prefect", "server", "stop").wait(60)


def until(what: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if found := what():
                return found
        time.sleep(0.5)
    raise AssertionError("waited in vain")


def test_the_wheel_of_the_source_distribution_has_every_module_and_the_files_that_commands_read(wheel: Path) -> None:
    modules = {
        path.relative_to(ROOT) for folder in ("flows", "overnight", "tasks") for path in ROOT.glob(f"{folder}/**/*.py")
    }
    packages = ("overnight", "overnight/flows", "overnight/tasks")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        there = {name for name in names if name.endswith(".py")}
        assert there == {str("overnight" / path if path.parts[0] != "overnight" else path) for path in modules}
        shipped = "overnight/flows/deploy/shipped/"
        assert {name.removeprefix(shipped) for name in names if name.startswith(shipped)} == set(SHIPPED)
        for name, original in SHIPPED.items():
            assert archive.read(shipped + name) == (ROOT / original).read_bytes()
        documentation = "overnight/cli/reference/shipped/"
        texts = {name.removeprefix(documentation) for name in names if name.startswith(documentation)}
        assert texts == {"CHANGELOG.md", *pages()}
        assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
        assert {f"{package}/py.typed" for package in packages} <= names
        assert wheel.stat().st_size < WHEEL_BYTES


def test_the_documentation_is_printed_in_an_empty_folder(installed: Installed) -> None:
    listed = installed.run("overnight", "docs")
    assert [page for page in pages() if page.removeprefix("docs/").removesuffix(".md") not in listed] == []
    assert "# Speech" in installed.run("overnight", "docs", "how-to/speech")
    assert "- default: `auto`" in installed.run("overnight", "docs", "inference.image_embedding.batch_size")
    assert "# overnight.run" in installed.run("overnight", "docs", "overnight.run")
    assert "kind: parquet" in installed.run("overnight", "docs", "sink.parquet")
    code, _, said = installed.ended("overnight", "docs", "sink.parket")
    assert (code, "sink.parquet" in said) == (2, True)


@pytest.mark.timeout(900)
def test_every_command_works_in_an_empty_folder(installed: Installed) -> None:
    here = installed.folder
    assert str(installed.environment) in installed.run("python", "-c", "import overnight; print(overnight.__file__)")
    [version] = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version")]
    assert installed.run("overnight", "--version").split()[-1] == version.split('"')[1]

    pictures = here / "in/date=2026-01-02"
    pictures.mkdir(parents=True)
    for i in range(4):
        Image.fromarray(np.full((8, 10, 3), i * 20, np.uint8)).save(pictures / f"{i}.png")
    source = f"{here}/in/date={{partition}}"
    installed.run("overnight", "init", "--path", source, "--work", "python", "--name", "brightness")
    job = here / "brightness.yaml"
    receipt = installed.json("overnight", "run", job.name, "--partition", "2026-01-02")
    assert (receipt["status"], receipt["rows_out"]) == ("published", 4)
    [entry] = installed.json("overnight", "status", job.name, "--start", "2026-01-02", "--end", "2026-01-02")
    assert entry["status"] == "published"

    deployed = installed.json("overnight", "deploy", job.name)
    first = {f"{change['kind']} {change['name']}": change["done"] for change in deployed}
    assert first == dict.fromkeys(first, "created")
    assert set(first) == {
        "work pool overnight",
        *(f"work queue overnight/{queue}" for queue in ("daily", "default", "backfill")),
        "concurrency limit overnight-gpu",
        *(f"deployment {flow}/brightness" for flow in ("batch-inference", "backfill")),
        *(f"automation overnight-{name}" for name in AUTOMATION_NAMES),
    }

    variables = {**installed.variables(), "PREFECT_API_URL": installed.api}
    _, told, _ = installed.ended("overnight", "doctor", job.name, "--json", env=variables)
    findings = json.loads(told)
    assert LOGIN not in told
    levels = {finding["what"]: finding["level"] for finding in findings}
    assert [levels.pop(what) for what in ("worker", "next run")] == ["wrong", "wrong"]  # no worker is started yet
    assert set(levels) >= {"server", "work pool overnight", "deployments", "automations", "versions", "Ray", "sink"}
    assert "wrong" not in levels.values(), findings

    _runs_in_the_folder_of_the_call(installed)
    _serves(installed, job.name)


def _runs_in_the_folder_of_the_call(installed: Installed) -> None:
    """A worker that starts elsewhere finds my_models.py, which lies beside the job file."""
    api = installed.api
    deployment = ask(api, "/deployments/name/batch-inference/brightness")
    given = {"parameters": {"partition": "2026-01-02", "force": True, "reason": "deployed"}}
    run = ask(api, f"/deployments/{deployment['id']}/create_flow_run", given)["id"]
    variables = {**installed.variables(), "PREFECT_API_URL": api}
    command = ("python", "-m", "prefect", "worker", "start", "--pool", "overnight", "--type", "process")
    log = installed.home / "worker.log"
    with open(log, "w") as output:
        options = {"cwd": installed.home, "env": variables, "stdout": output, "stderr": output}
        worker = installed.start(*command, start_new_session=True, **options)
    try:
        waiting = ("SCHEDULED", "PENDING", "RUNNING")
        until(lambda: ask(api, f"/flow_runs/{run}")["state_type"] not in waiting, COMMAND_SECONDS)
        assert ask(api, f"/flow_runs/{run}")["state_type"] == "COMPLETED", log.read_text()[-3000:]
    finally:
        os.killpg(worker.pid, signal.SIGKILL)  # with its run; how Prefect's worker ends is not tested here
        worker.wait(120)
    receipt = installed.folder / "predictions/brightness/_overnight/date=2026-01-02/receipt.json"
    assert json.loads(receipt.read_text())["reason"] == "deployed"


def _serves(installed: Installed, job: str) -> None:
    api, name = installed.api, "/deployments/name/batch-inference/brightness"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        prefect_api.ask(api, "/admin/settings", login="")
    with pytest.raises(urllib.error.HTTPError, match="403"):  # the lack of a CSRF token is seen before that of a login
        prefect_api.ask(api, "/flow_runs/filter", {}, login="")
    ask(api, f"/deployments/{ask(api, name)['id']}", method="DELETE")
    server = installed.start("overnight", "serve", job, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        until(lambda: ask(api, name)["status"] == "READY")  # the runner polls; a signal before it does may hang it
        assert server.poll() is None
    finally:
        is_deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as are tests in the background of a shell
        server.send_signal(signal.SIGTERM if is_deaf else signal.SIGINT)
        said = server.communicate(timeout=120)[1]
    assert "automation overnight-crashed-run-starts-again: unchanged" in said
