"""A week of hours in two regions, and the day after them, by a server's own scheduler whose clock the test moves.

The server, its worker and the commands are processes with one moved clock. The worker begins on Sunday: `catch_up` runs
the newest hour, the schedule those of Sunday, and a backfill the others.
"""

import json
import os
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import duckdb
import pytest

from tests.chaos.runs import MARK, Process, answers, end, free_ports, wait_for
from tests.flows.schedule.moved_clock import MovedClock
from tests.jobs import write_job
from tests.prefect_api import ask

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(14_400)]

ROOT = Path(__file__).parents[3]
MONDAY = datetime(2026, 3, 23, tzinfo=UTC)
HOUR = timedelta(hours=1)
TIMES = [MONDAY + (number + 1) * HOUR + timedelta(minutes=20) for number in range(7 * 24)]  # of the schedule
DAYS = [f"2026-03-{day}" for day in range(23, 30)]
ROWS = {"eu": 3, "us": 2}  # of each hour
POISONED = "2026-03-29T13,eu"
SUNDAY = TIMES[-24:]
AT_MOST = 7200.0  # seconds, for what a step waits for: the backfill runs 287 partitions
ENDS = {"Completed", "Waiting", "Skipped", "Failed"}
OVERNIGHT = ("-c", "from overnight.cli.main import main; main(prog_name='overnight')")
SERVER = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
}


def names(times: Iterable[datetime]) -> set[str]:
    """Return the partitions that the runs of these times take."""
    return {f"{time - HOUR:%Y-%m-%dT%H},{region}" for time in times for region in ROWS}


def ids(time: datetime, region: str) -> list[str]:
    return [f"{time - HOUR:%dT%H}-{region}-{number}" for number in range(ROWS[region])]


class Week:
    """The job `events` of hours and regions, the job `totals` that follows it, and processes with one moved clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, [self.port] = folder, MovedClock(folder), free_ports(1)
        self.api = f"http://127.0.0.1:{self.port}/api"
        self.processes: list[Process] = []

    def begin(self) -> None:
        """Start the server, and deploy the jobs."""
        self.clock.move(MONDAY + timedelta(minutes=30))
        self.write_jobs()
        address = ("--host", "127.0.0.1", "--port", str(self.port))
        self.needed = [self.python("-m", "prefect", "server", "start", *address, **SERVER)]
        wait_for("the server", lambda: answers("127.0.0.1", self.port), AT_MOST)
        self.overnight("deploy", "events.yaml", "totals.yaml")

    def start_worker(self) -> None:
        self.needed.append(self.python("-m", "tests.flows.schedule.warm_worker"))

    def write_jobs(self) -> None:
        for time in TIMES:
            for region in ROWS:
                path = self.folder / f"in/{region}/{time - HOUR:%Y-%m-%d/%H}/rows.jsonl"
                path.parent.mkdir(parents=True)
                lines = [json.dumps({"id": text}) for text in ids(time, region)]
                path.write_text("\n".join(lines) + "\n")
        events = {
            "name": "events",
            "source": {"kind": "jsonl", "path": f"{self.folder}/in/{{region}}/{{date}}/{{hour}}/"},
            "partitions": {"hour": "hour", "region": list(ROWS), "start": "2026-03-23T00"},
            "sink": {"kind": "parquet", "path": f"{self.folder}/events"},
            "schedule": {"cron": "20 * * * *"},
        }
        totals = {
            "name": "totals",
            "source": {"kind": "job", "job": str(write_job(self.folder / "events.yaml", events))},
            "partitions": {"every": "day", "start": DAYS[0]},
            "run_after": {"job": str(self.folder / "events.yaml")},
            "sink": {"kind": "parquet", "path": f"{self.folder}/totals"},
        }
        write_job(self.folder / "totals.yaml", totals)

    def python(self, *arguments: str, **variables: str) -> Process:
        """Start Python with the moved clock. Its output goes to a file."""
        mark = uuid.uuid4().hex
        ours = {"PREFECT_HOME": f"{self.folder}/prefect", "PREFECT_API_URL": self.api, "PREFECT_API_AUTH_STRING": ""}
        ours["PYTHONPATH"] = str(ROOT)
        environment = {**os.environ, **ours, **self.clock.environment, **variables, MARK: mark}
        with (self.folder / f"{len(self.processes)}.log").open("w") as log:
            command = [sys.executable, *arguments]
            process = Process(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, text=True, start_new_session=True
            )
        process.mark = mark
        self.processes.append(process)
        return process

    def overnight(self, *arguments: str, code: int = 0) -> str:
        """Run a command of Overnight to its end, and return what it printed."""
        process = self.python(*OVERNIGHT, *arguments, OVERNIGHT_FORK_SERVER="")
        log = self.folder / f"{len(self.processes) - 1}.log"
        assert process.wait(AT_MOST) == code, log.read_text()[-3000:]
        return log.read_text()

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        """Return all runs of the deployment of a job."""
        runs: list[dict[str, Any]] = []
        flow = {"name": {"any_": ["batch-inference"]}}
        body = {"flows": flow, "deployments": {"name": {"any_": [deployment]}}, "sort": "ID_DESC", "limit": 200}
        while page := ask(self.api, "/flow_runs/filter", {**body, "offset": len(runs)}):
            runs += page
        return runs

    def states(self, deployment: str) -> dict[str, list[str]]:
        """Return the names of the states of a deployment's runs that are due, by the name of the run."""
        states: dict[str, list[str]] = {}
        for run in self.runs(deployment):
            if datetime.fromisoformat(run["expected_start_time"]) <= self.clock.now():
                states.setdefault(run["name"], []).append(run["state"]["name"])
        return states

    def scheduled_times(self) -> list[datetime]:
        """Return the times of the runs that the server's scheduler has made, also of those to come."""
        runs = [run for run in self.runs("events") if run["auto_scheduled"]]
        return sorted(datetime.fromisoformat(run["expected_start_time"]) for run in runs)

    def due_times(self) -> list[datetime]:
        return [time for time in self.scheduled_times() if time <= self.clock.now()]

    def let_come(self, time: datetime) -> None:
        """Move the clock to a time of the schedule, once the scheduler has made its run."""
        self.wait_for(f"the run of {time}", lambda: time in self.scheduled_times())
        self.clock.move(time + timedelta(seconds=5))

    def has_run(self, partition: str) -> bool:
        """Return True if the run of an hour has published or failed."""
        ledger = self.folder / f"events/_overnight/date,hour,region={partition}"
        return any((ledger / f"{name}.json").exists() for name in ("receipt", "failure"))

    def published(self) -> set[str]:
        paths = self.folder.glob("events/_overnight/*/receipt.json")
        return {path.parent.name.partition("=")[2] for path in paths}

    def wait_for_runs(self) -> None:
        """Wait until the worker has done all that is due: each publish of an hour starts a run of `totals`."""

        def are_over() -> bool:
            events, totals = self.states("events"), self.states("totals")
            states = {state for names in (*events.values(), *totals.values()) for state in names}
            return sum(map(len, totals.values())) == len(self.published()) and states <= ENDS

        self.wait_for("the end of all runs", are_over)

    def wait_for(self, what: str, happened: Callable[[], object]) -> None:
        """Wait for an event, as long as no process ends that is needed for it."""

        def has_happened() -> object:
            for process in self.needed:
                assert process.poll() is None, "a process has ended: see its log"
            sleep(0.3)  # each answer costs the server time
            with suppress(TimeoutError):  # a busy server
                return happened()
            return None

        wait_for(what, has_happened, AT_MOST)

    def backfill(self, **parameters: Any) -> str:
        """Run a backfill of the hours as a run of its deployment, and return why it failed."""
        deployment = ask(self.api, "/deployments/name/backfill/events")["id"]
        body = {"state": {"type": "SCHEDULED"}, "parameters": parameters}
        path = f"/flow_runs/{ask(self.api, f'/deployments/{deployment}/create_flow_run', body)['id']}"
        self.wait_for("the end of the backfill", lambda: ask(self.api, path)["state_name"] in ENDS)
        state = ask(self.api, path)["state"]
        return str(state["message"] or "") if state["name"] == "Failed" else ""

    def daily_rows(self) -> list[tuple[Any, ...]]:
        files = f"read_parquet('{self.folder}/totals/date=*/*.parquet', hive_partitioning = true)"
        return duckdb.execute(f"SELECT date::text, id FROM {files} ORDER BY ALL").fetchall()


@pytest.fixture
def week(tmp_path: Path) -> Iterator[Week]:
    week = Week(tmp_path)
    try:
        week.begin()
        yield week
    finally:
        for process in reversed(week.processes):
            end(process)


def test_a_week_of_hours_in_two_regions_is_scheduled_caught_up_backfilled_and_mended(week: Week) -> None:
    poison = week.folder / "in/eu/2026-03-29/13/rows.jsonl"
    good = poison.read_text()
    poison.write_text('{"id": \n')
    for time in TIMES[2:-24:3]:  # the scheduler makes three runs ahead
        week.let_come(time)
    assert week.due_times() == TIMES[:-24]
    week.start_worker()
    week.wait_for_runs()
    assert week.published() == names([TIMES[-25]])
    for time in SUNDAY:
        week.let_come(time)
        for partition in names([time]):
            week.wait_for(partition, partial(week.has_run, partition))
    week.wait_for_runs()
    assert week.due_times() == TIMES
    assert week.published() == names(TIMES[-25:]) - {POISONED}
    states = Counter(name for states in week.states("events").values() for name in states)
    assert states == {"Completed": 2 * 25 - 1, "Failed": 1, "Skipped": len(TIMES) - 25}
    assert set(week.states("totals")["totals/2026-03-29"]) == {"Waiting"}
    sentences = {run["state"]["message"] for run in week.runs("totals") if run["name"] == "totals/2026-03-29"}
    assert any(f"the partition {POISONED} of the job events, found it not published" in text for text in sentences)

    message = week.backfill(start=DAYS[0], end=DAYS[-1])
    assert f"1 of {len(names(TIMES[:-25])) + 1} partitions failed, first {POISONED}" in message
    week.wait_for_runs()
    assert week.published() == names(TIMES) - {POISONED}
    assert {row[0] for row in week.daily_rows()} == set(DAYS[:-1])

    poison.write_text(good)
    assert week.backfill(start=DAYS[-1], end=DAYS[-1], where=["region=eu"]) == ""
    week.wait_for_runs()
    expected = []
    for time in TIMES:
        expected += [(f"{time - HOUR:%Y-%m-%d}", text) for region in ROWS for text in ids(time, region)]
    assert week.daily_rows() == sorted(expected)
    for job in ("events", "totals"):
        entries = json.loads(week.overnight("status", f"{job}.yaml", "--start", DAYS[0], "--end", DAYS[-1], "--json"))
        assert {entry["status"] for entry in entries} == {"published"}
