"""The steps of try.py: an installation is used, and parts of it are broken on purpose.

After each disturbance every row is read back. A step knows what must hold; `installation.py` knows how to do it.
"""

import json
import time
import urllib.error
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from installation import Broken, Installation, get, wait_for

JOB, JOB_FILE = "digits-on-s3", "deployments/jobs/digits-on-s3.yaml"
RUN, BACKFILL = f"batch-inference/{JOB}", f"backfill/{JOB}"
CLEAN = "2026-11-17"  # the demo's day whose predictions the copies must match
DAYS = [f"2026-10-0{day}" for day in range(1, 8)]
POISONED = DAYS[3]
KILLED, CUT_OFF, COPIES = "2026-10-10", "2026-10-11", 15
SMALL_STEPS = ["sink.rows_per_part=50", "inference.0.batch_size=10"]  # small parts, to break a run in its middle
PARTS_BEFORE = 8
UNTIL_WHOLE_SECONDS = 360  # after a disturbance; by default Ray waits 420 s for a silent node
SCHEDULER_SECONDS = timedelta(seconds=75)  # the scheduler checks once a minute
NODES = 4  # the head, two workers, and the node of the Prefect worker
DATA = (Path(__file__).with_name("try_data.py")).read_text()


class Trial:
    """The steps, in order. Each returns a short report, or raises `Broken`."""

    def __init__(self, installation: Installation) -> None:
        self.it = installation
        self.failed_backfill = ""

    def data(self, verb: str, *arguments: str) -> dict[str, Any]:
        return dict(self.it.python(DATA, verb, *arguments))

    def up(self) -> str:
        self.it.compose("up", "--detach")
        wait_for("the Prefect API", lambda: self.it.ask("/health"), 300)
        wait_for(f"{NODES} Ray nodes", lambda: self.it.ray_nodes() == NODES, 300)
        wait_for("the container of the Prefect worker", lambda: self.it.run("true").returncode == 0, 300)
        if "<html" not in self.it.page("PREFECT_PORT", "/").lower():
            raise Broken("expected the Prefect UI, found another page")
        return f"{NODES} Ray nodes, the Prefect UI"

    def deploy(self) -> str:
        done = self.it.run("overnight", "deploy")
        if done.returncode:
            raise Broken(f"overnight deploy: exit status {done.returncode}: {done.stderr[-1000:]}")
        wait_for("a worker that is online", self._worker_is_online, 180)
        found = self.it.ask("/deployments/filter", {})
        return f"{len(found)} deployments"

    def _worker_is_online(self) -> bool:
        return any(worker["status"] == "ONLINE" for worker in self.it.ask("/work_pools/overnight/workers/filter", {}))

    def refusals(self) -> str:
        """Check that the API needs its password, and that no run gets a command or another environment."""
        api = f"http://127.0.0.1:{self.it.ports['PREFECT_PORT']}/api"
        refused = [_status(f"{api}/admin/settings"), _status(f"{api}/flows/filter", {})]
        created = f"{api}/deployments/{self.it.deployment(RUN)['id']}/create_flow_run"
        for variables in ({"command": "env"}, {"env": {"LD_PRELOAD": "x"}}):
            refused.append(_status(created, {"job_variables": variables}, self.it.login_for_change()))
        if refused != [401, 403, 422, 422]:  # the lack of a CSRF token is seen before that of a login
            raise Broken(f"expected the refusals 401, 403, 422 and 422, found {refused}")
        settings = json.dumps(self.it.ask("/admin/settings"))
        known = [file.read_text() for file in (self.it.folder / "secrets").iterdir() if "." not in file.name]
        if shown := [secret for secret in known if secret in settings]:
            raise Broken(f"expected no secret in /admin/settings, found {len(shown)}")
        return "401 and 403 without the password, 422 for a command; no secret in the settings"

    def doctor(self) -> str:
        """Check that `overnight doctor` finds nothing wrong in the worker's container."""
        done = self.it.run("overnight", "doctor", JOB_FILE)
        print(done.stdout, flush=True)
        if done.returncode:
            raise Broken(f"overnight doctor: exit status {done.returncode} {done.stderr[-500:]}")
        return "nothing wrong"

    def first_run(self) -> str:
        """Run a day of the demo from the form, as a new user does first."""
        seconds = self._run(CLEAN, reason="the first run")
        self.data("make", *[word for day in DAYS for word in (day, "1")])
        self.data("make", KILLED, str(COPIES), CUT_OFF, str(COPIES))
        return f"{self._exact(CLEAN)}, {seconds:.0f} s"

    def schedule(self) -> str:
        """Move the daily schedule to the near future, and check that its run takes the day before."""
        deployment = self.it.deployment(RUN)
        [schedule] = deployment["schedules"]
        place = f"/deployments/{deployment['id']}/schedules/{schedule['id']}"
        moment = (datetime.now(UTC) + SCHEDULER_SECONDS + timedelta(minutes=1)).replace(second=0, microsecond=0)
        day = (moment.date() - timedelta(days=1)).isoformat()
        self.data("make", day, "1")
        cron = {"cron": f"{moment.minute} {moment.hour} * * *", "timezone": "UTC"}
        self.it.ask(place, {"schedule": cron, "active": True}, "PATCH")
        scheduled = {"expected_start_time": {"before_": (moment + timedelta(seconds=1)).isoformat()}}
        query = {"deployments": {"id": {"any_": [deployment["id"]]}}, "flow_runs": scheduled}

        def fired() -> str | None:
            runs = self.it.ask("/flow_runs/filter", query)
            return next((str(run["id"]) for run in runs if run["auto_scheduled"]), None)

        flow_run = wait_for("a run that the schedule made", fired, 240)
        run = self.it.wait_for_run(flow_run)
        self.it.ask(place, {"schedule": schedule["schedule"], "active": schedule["active"]}, "PATCH")
        late = datetime.fromisoformat(run["start_time"]) - moment
        if day not in run["name"]:
            raise Broken(f"expected the day {day} in the run's name, found {run['name']}")
        return f"{self._exact(day)}, began {late.total_seconds():.0f} s after its time"

    def backfill(self) -> str:
        """Backfill seven days, one with failing checks: six are published, and the backfill reports the failure."""
        self.data("poison", POISONED)
        begun = time.monotonic()
        flow_run = self.it.start(BACKFILL, start=DAYS[0], end=DAYS[-1], order="newest", max_concurrent=2)
        run = self.it.wait_for_run(flow_run, 1200, expected="FAILED")
        seconds = time.monotonic() - begun
        self.failed_backfill = flow_run[-8:]
        if POISONED not in run["state"]["message"]:
            raise Broken(f"expected {POISONED} in the backfill's message, found {run['state']['message']}")
        self._statuses(dict.fromkeys(DAYS, "published") | {POISONED: "failed"})
        for day in DAYS:
            if day != POISONED:
                self._exact(day)
        return f"6 of 7 published, every row once, {seconds:.0f} s"

    def resume(self) -> str:
        """Repair the day, and check that the resume runs only this day."""
        before = {day: self.data("rows", day) for day in DAYS if day != POISONED}
        self.data("cure", POISONED)
        self.it.wait_for_run(self.it.start(BACKFILL, resume=self.failed_backfill), 600)
        self._statuses(dict.fromkeys(DAYS, "published"))
        if again := [day for day, rows in before.items() if self.data("rows", day) != rows]:
            raise Broken(f"the resume ran published days again: {', '.join(again)}")
        return f"{self._exact(POISONED)}; the other six days did not change"

    def cancel(self) -> str:
        """Cancel another backfill of all seven days: it ends with its children, and published days stay."""
        flow_run = self.it.start(BACKFILL, start=DAYS[0], end=DAYS[-1], select=["all"], reason="to be cancelled")
        wait_for("its first child", lambda: self._runs_under_way() > 1, 300)
        time.sleep(5)
        begun = time.monotonic()
        state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
        self.it.ask(f"/flow_runs/{flow_run}/set_state", state)
        self.it.wait_for_run(flow_run, 180, expected="CANCELLED")
        wait_for("the end of its children", lambda: self._runs_under_way() == 0, 120)
        seconds = time.monotonic() - begun
        for day in DAYS:
            self._exact(day)
        return f"cancelled with its children in {seconds:.0f} s, every row of all days once"

    def _runs_under_way(self) -> int:
        states = {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}
        return int(self.it.ask("/flow_runs/count", {"flow_runs": {"state": states}}))

    def kill(self) -> str:
        """Kill a Ray worker's container during a run."""
        worker = self.it.containers("ray-worker")[0]

        def disturb() -> None:
            self.it.engine("kill", worker)

        seen = self._disturbed(KILLED, disturb)
        self.it.engine("start", worker)
        self._whole_again()
        return seen

    def cut_off(self) -> str:
        """Disconnect a Ray worker from the network during a run, and connect it after the run."""
        worker = self.it.containers("ray-worker")[-1]
        networks = self.it.networks(worker)

        def disturb() -> None:
            for network in networks:
                self.it.engine("network", "disconnect", network, worker)

        seen = self._disturbed(CUT_OFF, disturb)
        for network in networks:
            self.it.engine("network", "connect", "--alias", "ray-worker", network, worker)
        self._whole_again()
        return seen

    def _disturbed(self, day: str, disturb: Callable[[], None]) -> str:
        begun = time.monotonic()
        flow_run = self.it.start(RUN, partition=day, settings=SMALL_STEPS)
        staged = self.data("parts", day, str(PARTS_BEFORE))["parts"]
        disturb()
        disturbed = time.monotonic()
        self.it.wait_for_run(flow_run, UNTIL_WHOLE_SECONDS)
        states = [name for name in self.it.states(flow_run) if name in ("Crashed", "AwaitingRetry", "Retrying")]
        attempts = sum("attempt" in line and "failed" in line for line in self.it.logs(flow_run)) + 1
        rows = self._exact(day)
        whole, after = time.monotonic() - begun, time.monotonic() - disturbed
        return (
            f"{rows}; {staged} parts were staged, {attempts} attempts{', ' if states else ''}{', '.join(states)}; "
            f"{whole:.0f} s in total, {after:.0f} s of it after the disturbance"
        )

    def undisturbed(self) -> str:
        """Repeat the same run without a disturbance, to compare the times."""
        seconds = self._run(KILLED, force=True, settings=SMALL_STEPS, reason="to compare")
        return f"{self._exact(KILLED)}, {seconds:.0f} s"

    def _whole_again(self) -> None:
        wait_for(f"{NODES} Ray nodes", lambda: self.it.ray_nodes() == NODES, 300)

    def metrics(self) -> str:
        """Check that Prometheus scrapes every Ray node, Prefect and the partitions, and that Grafana answers."""
        wait_for("all nodes in Prometheus", lambda: len(self.it.metric('up{job="ray"} == 1')) == NODES, 120)
        wait_for("Prefect in Prometheus", lambda: self.it.metric('up{job="prefect"} == 1'), 60)
        published = 'overnight_partition_status{status="published"} == 1'
        wait_for("published partitions in Prometheus", lambda: self.it.metric(published), 180)
        board = json.loads((Path(__file__).parents[1] / "grafana/dashboards/overnight.json").read_text())
        expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        shown = sum(bool(self.it.metric(f"last_over_time(({expression})[2h:1m])")) for expression in expressions)
        self.it.engine(
            "exec", *self.it.containers("grafana"), "wget", "-q", "-O", "-", "http://127.0.0.1:3000/api/health"
        )
        return f"{NODES} nodes and Prefect; {shown} of the dashboard's {len(expressions)} expressions have data"

    def _run(self, day: str, **parameters: Any) -> float:
        begun = time.monotonic()
        self.it.wait_for_run(self.it.start(RUN, partition=day, **parameters))
        return time.monotonic() - begun

    def _exact(self, day: str) -> str:
        found = self.data("rows", day)
        resumed = f" ({found['rows_resumed']} resumed)" if found["rows_resumed"] else ""
        return f"{day}: {found['rows_out']} rows, each once{resumed}"

    def _statuses(self, expected: dict[str, str]) -> None:
        """Compare the output of `overnight status` for these days with `expected`. Raise `Broken`."""
        days = sorted(expected)
        done = self.it.run("overnight", "status", JOB_FILE, "--start", days[0], "--end", days[-1], "--json")
        if done.returncode:
            raise Broken(f"overnight status: exit status {done.returncode}: {done.stderr[-500:]}")
        found = {entry["partition"]: entry["status"] for entry in json.loads(done.stdout)}
        if found != expected:
            raise Broken(f"overnight status: expected {expected}, found {found}")

    def show_status(self) -> None:
        done = self.it.run("overnight", "status", JOB_FILE)
        print(done.stdout or done.stderr[-500:], flush=True)


def _status(url: str, body: Any = None, headers: dict[str, str] | None = None) -> int:
    """Return the HTTP status of a response."""
    try:
        get(url, headers, body)
    except urllib.error.HTTPError as error:
        return error.code
    return 200
