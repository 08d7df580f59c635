"""Control an installation of docker-compose.yml for try.py, with a name, ports and secrets of its own.

It needs only Python's standard library, a container engine and its compose command: COMPOSE, by default
`docker compose`. It knows the engine, the Prefect API and the pages that show health; trial.py knows the steps.
"""

import base64
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from make_secrets import make_secrets

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "overnight-try"
COMPOSE = shlex.split(os.environ.get("COMPOSE", "docker compose"))
ENGINE = os.environ.get("ENGINE", "podman" if "podman" in COMPOSE[0] else "docker")
PORTS = ("PREFECT_PORT", "RAY_DASHBOARD_PORT", "S3_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Broken(Exception):
    """Raised when a step fails."""


class Installation:
    """A running installation of docker-compose.yml."""

    def __init__(self) -> None:
        """Choose ports and make secrets, and write them to a temporary folder for the compose command."""
        self.ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        self.folder = Path(tempfile.mkdtemp(prefix="overnight-try-"))
        made = self.folder / "secrets"
        make_secrets(made)
        self.token, password = (made / "ray-token").read_text(), (made / "prefect-password").read_text()
        self.login = {"authorization": f"Basic {base64.b64encode(f'overnight:{password}'.encode()).decode()}"}
        settings = {"SECRETS": str(made)} | {name: str(port) for name, port in self.ports.items()}
        self._file = self.folder / "env"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.command = [*COMPOSE, "--project-name", PROJECT, "--env-file", str(self._file)]

    def compose(self, *arguments: str, seconds: float = 1200) -> str:
        """Run the compose command, and return its output. Raise `Broken`."""
        return _output([*self.command, *arguments], seconds)

    def remove(self) -> None:
        """Remove containers, volumes and secrets. Raise `Broken`."""
        self.compose("down", "--volumes", seconds=300)
        shutil.rmtree(self.folder)

    def containers(self, service: str) -> list[str]:
        """Return the ids of a service's containers, in the order of their names."""
        found = _output(
            [ENGINE, "ps", "--all", "--format", "{{.Names}} {{.ID}}"]
            + [f"--filter=label=com.docker.compose.{what}" for what in (f"project={PROJECT}", f"service={service}")]
        )
        return [line.split()[1] for line in sorted(found.splitlines()) if line]

    def engine(self, *arguments: str) -> str:
        return _output([ENGINE, *arguments])

    def run(self, *command: str, stdin: str = "", seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command in the container of the Prefect worker, in the project's folder."""
        [worker] = self.containers("prefect-worker")
        return subprocess.run(
            [ENGINE, "exec", "--interactive", worker, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def python(self, code: str, *arguments: str, seconds: float = 300) -> Any:
        """Run a Python program in the worker's container, and return the JSON document that it prints."""
        done = self.run("python", "-", *arguments, stdin=code, seconds=seconds)
        if done.returncode:
            raise Broken(f"a program in the worker's container failed: {done.stderr[-1000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def networks(self, container: str) -> list[str]:
        return list(json.loads(self.engine("inspect", container))[0]["NetworkSettings"]["Networks"])

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Return the Prefect API's response, or None if it is empty."""
        api = f"http://127.0.0.1:{self.ports['PREFECT_PORT']}/api"
        headers = self.login if body is None and method is None else self.login_for_change()
        return get(f"{api}{path}", headers, body, method)

    def login_for_change(self) -> dict[str, str]:
        """Return the headers of a request that changes something: the login, and a token against forged requests."""
        token = self.ask("/csrf-token?client=try")["token"]
        return self.login | {"prefect-csrf-client": "try", "prefect-csrf-token": token}

    def page(self, port: str, path: str) -> str:
        """Return a page as a browser would read it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def ray_nodes(self) -> int:
        """Return the number of live Ray nodes, as Ray's dashboard counts them."""
        url = f"http://127.0.0.1:{self.ports['RAY_DASHBOARD_PORT']}/nodes?view=summary"
        answer = get(url, {"Authorization": f"Bearer {self.token}"})
        return sum(node["raylet"].get("state") == "ALIVE" for node in answer["data"]["summary"])

    def metric(self, expression: str) -> list[Any]:
        """Return the result of a query to Prometheus."""
        query = urllib.parse.urlencode({"query": expression})
        answer = get(f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}/api/v1/query?{query}")
        return list(answer["data"]["result"])

    def deployment(self, name: str) -> dict[str, Any]:
        return dict(self.ask(f"/deployments/name/{name}"))

    def start(self, name: str, **parameters: Any) -> str:
        """Request a run of a deployment with the form's parameters, and return the flow run's id."""
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return str(self.ask(f"/deployments/{self.deployment(name)['id']}/create_flow_run", body)["id"])

    def wait_for_run(self, flow_run: str, seconds: float = 600, expected: str = "COMPLETED") -> dict[str, Any]:
        """Wait until the flow run has ended as expected, and return it. A crashed run may restart. Raise `Broken`."""

        def ended() -> dict[str, Any] | None:
            run = dict(self.ask(f"/flow_runs/{flow_run}"))
            return run if run["state_type"] in set(ENDED) - ({"CRASHED"} - {expected}) else None

        run = wait_for(f"the end of the flow run {flow_run}", ended, seconds)
        if run["state_type"] != expected:
            raise Broken(f"{run['name']}: expected {expected}, found {run['state_type']}: {run['state']['message']}")
        return run

    def states(self, flow_run: str) -> list[str]:
        """Return the names of all states of a flow run, in order."""
        states = self.ask(f"/flow_run_states/?flow_run_id={flow_run}")
        return [state["name"] for state in sorted(states, key=lambda state: state["timestamp"])]

    def logs(self, flow_run: str) -> list[str]:
        body = {"logs": {"flow_run_id": {"any_": [flow_run]}}, "limit": 200, "sort": "TIMESTAMP_ASC"}
        return [log["message"] for log in self.ask("/logs/filter", body)]


def get(url: str, headers: dict[str, str] | None = None, body: Any = None, method: str | None = None) -> Any:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json", **(headers or {})},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def wait_for(what: str, true: Callable[[], Any], seconds: float) -> Any:
    """Return the first true result of `true`, which may raise connection errors until then. Raise `Broken`."""
    deadline = time.monotonic() + seconds
    problem = ""
    while time.monotonic() < deadline:
        try:
            if found := true():
                return found
            problem = ""
        except (OSError, KeyError, ValueError, subprocess.SubprocessError) as error:  # HTTP errors are OSErrors
            problem = f" ({error})"
        time.sleep(1)
    raise Broken(f"expected {what} within {seconds:.0f} s, found nothing{problem}")


def _output(command: Sequence[str], seconds: float = 120) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise Broken(f"{shlex.join(command[:8])} ... exit status {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
