"""A second user of this machine, and a page of another origin, against every server and file of Overnight's programs.

The programs run as here, with the usual umask, in folders that everyone may enter: a run with `serve` and `metrics`, a
job of Slurm, and the services of Compose. The model of each run holds a row until the end.
"""

import contextlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import psycopg
import pytest
import yaml

from tests.chaos.runs import Process, end, marked, overnight, start_marked, wait_until
from tests.flows.runs.test_local_ray import ENTERED
from tests.flows.runs.test_local_ray import as_nobody as python_as_nobody
from tests.slurm import slurm_cluster

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
ROW, TOKEN = "a text of a row", "a" * 64
QUIET = {"OVERNIGHT_FORK_SERVER": "", "RAY_USAGE_STATS_ENABLED": "0", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
MODEL = """
import pathlib, time

class Waits:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def __call__(self, batch):
        (self.folder / "reached").touch()
        while not (self.folder / "release").exists():
            time.sleep(0.1)
        return {"size": [len(text) for text in batch["text"]]}
"""
DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
REQUESTS = [
    ("GET", "/api/admin/version"),
    ("POST", "/api/deployments/filter"),
    ("POST", "/api/flow_runs/filter"),
    ("GET", "/api/csrf-token?client=a"),
    ("GET", "/api/v0/nodes"),
    ("GET", "/api/jobs/"),
    ("POST", "/api/jobs/"),
    ("GET", "/api/v0/logs"),
    ("GET", "/nodes?view=summary"),
    ("GET", "/api/v1/query?query=up"),
    ("GET", "/overnight"),
]
METRICS = ("# HELP", "# TYPE")
SERVERS_OF_METRICS = {"prometheus", "postgres-exporter", "redis-exporter"}  # they have no login, and no rows
NOBODYS = {"prometheus"}  # its image runs as the user nobody
ORIGIN = {"Origin": "http://attacker.example"}


class Server(NamedTuple):
    """What listens on a TCP port. `ip`: at which other users of this machine reach it."""

    name: str
    ip: str
    port: int

    @property
    def is_local(self) -> bool:
        return self.ip.removeprefix("::ffff:") in ("127.0.0.1", "::1")

    @property
    def address(self) -> str:
        """Where this machine reaches it."""
        host = self.ip.removeprefix("::ffff:").replace("0.0.0.0", "127.0.0.1")
        return f"{'127.0.0.1' if host == '::' else host}:{self.port}"


@dataclass(frozen=True)
class Programs:
    """Programs while a row is in the model, and the folder with all that they wrote, of which `files` is private.

    `local` is in the names of those that only this machine may reach.
    """

    folder: Path
    started: dict[str, Process] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    local: str = ""

    @property
    def login(self) -> str:
        text = (self.home / "overnight-login.toml").read_text()
        return str(tomllib.loads(text)["profiles"]["overnight"]["PREFECT_API_AUTH_STRING"])

    @property
    def home(self) -> Path:
        return self.files["Prefect's home"]

    @property
    def holders(self) -> set[Path]:
        """The files that hold the login."""
        return {self.home / name for name in ("overnight-login.toml", "profiles.toml")}

    @property
    def api(self) -> str:
        return str(json.loads((self.home / "overnight-server.json").read_text())["url"])

    @property
    def ray(self) -> str:
        """The address of Ray."""
        return next(server.address for server in self.servers if "gcs_server" in server.name)

    def asked(self, path: str) -> httpx.Response:
        """The answer of the Prefect server to its owner."""
        user, _, password = self.login.partition(":")
        return httpx.get(self.api + path, auth=(user, password), timeout=30)

    @property
    def processes(self) -> dict[psutil.Process, str]:
        """Every process that they started, with the name of its program."""
        return {psutil.Process(pid): name for name, each in self.started.items() for pid in marked(each.mark)}

    @property
    def servers(self) -> set[Server]:
        return {
            Server(f"{name}: {' '.join(process.cmdline())[:120]}", each.laddr.ip, each.laddr.port)
            for process, name in self.processes.items()
            for each in process.net_connections("tcp")
            if each.status == psutil.CONN_LISTEN
        }

    @property
    def too_open(self) -> set[Server]:
        """What other machines reach, and should not."""
        return {server for server in self.servers if self.local in server.name and not server.is_local}


@dataclass(frozen=True)
class Composed(Programs):
    """The services of Compose. `installation`: of deployments/docker/installation.py."""

    installation: Any = None

    @property
    def login(self) -> str:
        return f"overnight:{(self.folder / 'secrets/prefect-password').read_text()}"

    @property
    def holders(self) -> set[Path]:
        names = ("prefect-password", "prefect-client.toml", "prefect-server.toml")
        return {self.folder / "secrets" / name for name in names}

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.installation.ports['PREFECT_PORT']}/api"

    @property
    def ray(self) -> str:
        return next(each.address for each in self.servers if (each.name, each.port) == ("ray-head", 6379))

    @cached_property
    def containers(self) -> list[dict[str, Any]]:
        names = self.installation.engine("ps", "--quiet", "--filter", "label=com.docker.compose.project=overnight-try")
        return list(json.loads(self.installation.engine("inspect", *names.split())))

    @property
    def processes(self) -> dict[psutil.Process, str]:
        return {
            process: service(container)
            for container in self.containers
            for first in [psutil.Process(container["State"]["Pid"])]
            for process in [first, *first.children(recursive=True)]
        }

    @property
    def servers(self) -> set[Server]:
        """What listens in the containers, at an address that this machine reaches."""
        return {
            Server(service(container), next(iter(container["NetworkSettings"]["Networks"].values()))["IPAddress"], port)
            for container in self.containers
            for port in listening(container["State"]["Pid"])
        }

    @property
    def too_open(self) -> set[Server]:
        """What of the published ports other machines reach."""
        found = {
            Server(service(container), published["HostIp"], int(published["HostPort"]))
            for container in self.containers
            for ports in container["NetworkSettings"]["Ports"].values()
            for published in ports or ()
        }
        assert len(found) == len(self.installation.ports)
        return {server for server in found if not server.is_local}


def service(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def listening(pid: int) -> set[int]:
    """The ports in the network of a process that others reach."""
    command = ["nsenter", f"--target={pid}", "--net", "ss", "--no-header", "--tcp", "--listening", "--numeric"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    addresses = [line.split()[3].rpartition(":") for line in lines]
    return {int(port) for ip, _, port in addresses if not ip.startswith(("127.", "[::1]", "[::ffff:127."))}


def is_served(programs: Programs) -> bool:
    """Whether the job has its deployment."""
    answer = programs.asked("/deployments/name/batch-inference/two")
    return answer.is_success


def listens(programs: Programs) -> bool:
    return any(server.name.startswith("metrics") for server in programs.servers)


def is_in_model(programs: Programs) -> bool:
    return (programs.folder / "reached").exists()


def write_job(folder: Path) -> None:
    for name in ("in", "tmp", "ray"):
        (folder / name).mkdir(mode=0o755)
    (folder / "in/rows.jsonl").write_text(json.dumps({"text": ROW}) + "\n")
    (folder / "waits.py").write_text(MODEL)
    model = {"kind": "python", "target": "waits:Waits", "kwargs": {"folder": str(folder)}}
    job = {"name": "two", "source": {"kind": "jsonl", "path": str(folder / "in")}, "inference": [model]}
    job |= {"sink": {"kind": "parquet", "path": str(folder / "out")}, "schedule": {"cron": "0 2 1 1 *"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


@contextlib.contextmanager
def local_programs(folder: Path) -> Iterator[Programs]:
    """A run, `serve` and `metrics`."""
    files = {
        "Prefect's home": "prefect",
        "Ray's folder": "ray",
        "temporary files": "tmp",
        "the state": "out/_overnight",
    }
    programs = Programs(folder, files={name: folder / place for name, place in files.items()})
    environment = {"PREFECT_HOME": str(folder / "prefect"), "RAY_TMPDIR": str(folder / "ray"), "RAY_AUTH_TOKEN": TOKEN}
    commands: dict[str, tuple[tuple[str, ...], Callable[[Programs], bool]]] = {
        "run": (("run", "job.yaml", "--ray-dashboard"), is_in_model),
        "serve": (("serve", "job.yaml"), is_served),
        "metrics": (("metrics", "job.yaml", "--port", "0"), listens),
    }
    write_job(folder)
    try:
        for name, (arguments, is_ready) in commands.items():
            programs.started[name] = overnight(folder, *arguments, **environment, **QUIET, TMPDIR=str(folder / "tmp"))
            wait_until(partial(is_ready, programs), programs.started[name])
        yield programs
    finally:
        for process in programs.started.values():
            end(process)


@contextlib.contextmanager
def slurm_job(folder: Path) -> Iterator[Programs]:
    """A job of the Slurm script on a cluster of one node. Other nodes reach its Ray, but not its Prefect server."""
    files = {"the state": folder / "out/_overnight"}
    programs = Programs(folder, files=files, local="prefect server")
    environment = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    environment |= {"RAY_AUTH_TOKEN": TOKEN, "SLURM_TMPDIR": str(folder), "TMPDIR": str(folder / "tmp")}
    command = ["sbatch", "--wait", "--nodes=1", "--cpus-per-task=2", "--gpus-per-node=0", "--output=job.out"]
    command += [str(DEPLOYMENTS / "slurm/overnight.sbatch"), "job.yaml"]
    write_job(folder)
    with slurm_cluster(folder / "slurm") as slurm:
        try:
            programs.started["job"] = start_marked(folder, *command, **environment, **slurm, **QUIET)
            wait_until(partial(is_in_model, programs), programs.started["job"])
            [made] = folder.glob("overnight-*")
            files |= {"Prefect's home": made / "prefect", "Ray's folder": made}
            yield programs
        finally:
            for process in programs.started.values():
                end(process)
            print(*(file.read_text() for file in folder.glob("job.out")))


@contextlib.contextmanager
def compose_services(folder: Path) -> Iterator[Programs]:
    """The services of docker-compose.yml. Without their images, they are built first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DEPLOYMENTS / "docker")
        module, trial = (importlib.import_module(name) for name in ("installation", "trial"))
    answered = shutil.which(module.ENGINE) and subprocess.run([module.ENGINE, "ps"], check=False, capture_output=True)
    if not answered or answered.returncode:
        pytest.skip(f"needs an engine of containers, found none as {module.ENGINE}; COMPOSE names another")
    installation = module.Installation()
    try:
        print(trial.Trial(installation).up())
        programs = Composed(installation.folder, installation=installation)
        mounts = [mount for container in programs.containers for mount in container["Mounts"]]
        volumes = [Path(mount["Source"]) for mount in mounts if mount["Type"] == "volume"]
        programs.files.update({str(volume): volume for volume in volumes if any(volume.iterdir())})
        programs.files["the secrets"] = installation.folder
        yield programs
    finally:
        installation.remove()


@pytest.fixture(scope="module", params=[local_programs, slurm_job, compose_services], ids=["local", "slurm", "compose"])
def programs(request: pytest.FixtureRequest) -> Iterator[Programs]:
    folder = Path(tempfile.mkdtemp(prefix="two-", dir="/tmp"))
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PREFECT_", "RAY_"))]:
            patch.delenv(name)
        try:
            with request.param(folder) as started:
                yield started
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def as_nobody(*command: str) -> str:
    done = subprocess.run([*NOBODY, *command], check=False, capture_output=True, text=True, timeout=120)
    return done.stdout


def test_all_ports_are_of_this_machine_alone(programs: Programs) -> None:
    assert len(programs.servers) > 4
    assert programs.too_open == set()


def test_no_server_answers_without_a_login_or_lets_another_origin_read(programs: Programs) -> None:
    answered = []
    for server in programs.servers:
        for method, path in REQUESTS:
            try:
                answer = httpx.request(method, f"http://{server.address}{path}", headers=ORIGIN, timeout=5)
            except httpx.TransportError:
                break  # it does not speak HTTP
            is_open = answer.is_success and not answer.text.startswith((*METRICS, "<!"))  # metrics, the UI's page
            is_open &= server.name not in SERVERS_OF_METRICS
            if is_open or "access-control-allow-origin" in answer.headers:
                answered.append((server.name, server.port, method, path, answer.status_code, answer.text[:100]))
    assert answered == []


def test_another_user_runs_no_code_in_ray(programs: Programs) -> None:
    entered = python_as_nobody(ENTERED, programs.ray)
    assert "entered" not in entered.stdout
    assert "AuthenticationError" in entered.stderr


def test_a_database_needs_a_password(programs: Programs) -> None:
    if not isinstance(programs, Composed):
        pytest.skip("only Compose has databases of their own")
    [postgres], [redis] = ([each for each in programs.servers if each.name == name] for name in ("postgres", "redis"))
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host=postgres.ip, user="prefect", dbname="prefect", password=TOKEN)
    with socket.create_connection((redis.ip, redis.port), 10) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100).startswith(b"-NOAUTH")


def test_a_preflight_of_another_origin_is_refused_and_the_owner_is_not(programs: Programs) -> None:
    asked = {**ORIGIN, "Access-Control-Request-Method": "POST"}
    preflight = httpx.options(f"{programs.api}/deployments/filter", headers=asked)
    assert (preflight.status_code, "access-control-allow-origin" in preflight.headers) == (400, False)
    variables = {"PREFECT_API_URL": programs.api, "PREFECT_API_AUTH_STRING": programs.login}
    command = [sys.executable, "-m", "prefect", "work-pool", "ls"]
    subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True, timeout=120)


def test_no_socket_of_a_file_lets_another_user_in(programs: Programs) -> None:
    if isinstance(programs, Composed):
        pytest.skip("these sockets are inside containers")
    opened = [each for process in programs.processes for each in process.net_connections("unix")]
    paths = {each.laddr for each in opened if each.laddr}
    assert paths
    assert [path for path in paths if path.startswith(("\0", "@"))] == []  # abstract: open to everyone
    assert as_nobody("find", *sorted(path for path in paths if path.startswith("/")), "-writable") == ""


def test_another_user_reads_and_writes_no_file(programs: Programs) -> None:
    assert as_nobody("find", str(Path(__file__)), "-type", "f", "-readable")  # what a user left open
    for place in map(str, programs.files.values()):
        assert any(Path(place).rglob("*"))
        assert as_nobody("find", place, "!", "-type", "d", "-readable") == ""
        assert as_nobody("find", place, "-writable") == ""


def test_another_user_sees_no_secret_in_the_list_of_processes(programs: Programs) -> None:
    _, _, secret = programs.login.partition(":")
    for process, program in programs.processes.items():
        shown = " ".join(process.cmdline())
        assert secret not in shown
        assert TOKEN not in shown
        if program not in NOBODYS:
            places = [f"/proc/{process.pid}/{name}" for name in ("environ", "mem", "fd")]
            assert as_nobody("find", *places, "-maxdepth", "1", "-readable", "!", "-type", "l") == "", program


def test_the_login_is_in_no_file_but_its_own(programs: Programs) -> None:
    secret = programs.login.partition(":")[2].encode()
    found = {file for folder in (programs.folder, *programs.files.values()) for file in folder.rglob("*")}
    files = [file for file in found if file.is_file() and not file.is_symlink()]
    assert {file for file in files if secret in file.read_bytes()} == programs.holders
