"""A week of hours in two regions by a server's own scheduler: the server is a process whose clock the test moves."""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.chaos.runs import MARK, Process, answers, end, free_ports, wait_for
from tests.flows.schedule.moved_clock import MovedClock
from tests.jobs import write_job
from tests.prefect_api import ask

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

MONDAY = datetime(2026, 3, 23, tzinfo=UTC)
TIMES = [MONDAY + timedelta(hours=number + 1, minutes=20) for number in range(7 * 24)]  # of the schedule
AT_MOST = 600.0  # seconds, for what a step waits for
OVERNIGHT = ("-c", "from overnight.cli.main import main; main(prog_name='overnight')")
SERVER = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
}


class Week:
    """The deployed job `events` of hours and regions, and a server with a moved clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, [self.port] = folder, MovedClock(folder), free_ports(1)
        self.api = f"http://127.0.0.1:{self.port}/api"
        self.processes: list[Process] = []

    def begin(self) -> None:
        """Start the server, and deploy the job."""
        self.clock.move(MONDAY + timedelta(minutes=30))
        address = ("--host", "127.0.0.1", "--port", str(self.port))
        self.python("-m", "prefect", "server", "start", *address, **SERVER)
        wait_for("the server", lambda: answers("127.0.0.1", self.port), AT_MOST)
        events = {
            "name": "events",
            "source": {"kind": "jsonl", "path": f"{self.folder}/in/{{region}}/{{date}}/{{hour}}/"},
            "partitions": {"hour": "hour", "region": ["eu", "us"], "start": "2026-03-23T00"},
            "sink": {"kind": "parquet", "path": f"{self.folder}/events"},
            "schedule": {"cron": "20 * * * *"},
        }
        command = self.python(*OVERNIGHT, "deploy", str(write_job(self.folder / "events.yaml", events)))
        assert command.wait(AT_MOST) == 0, (self.folder / "1.log").read_text()[-3000:]

    def python(self, *arguments: str, **variables: str) -> Process:
        """Start Python with the moved clock. Its output goes to a file."""
        ours = {"PREFECT_HOME": f"{self.folder}/prefect", "PREFECT_API_URL": self.api, "PREFECT_API_AUTH_STRING": ""}
        mark = uuid.uuid4().hex
        environment = {**os.environ, **ours, **self.clock.environment, **variables, MARK: mark}
        with (self.folder / f"{len(self.processes)}.log").open("w") as log:
            command = [sys.executable, *arguments]
            process = Process(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, text=True, start_new_session=True
            )
        process.mark = mark
        self.processes.append(process)
        return process

    def scheduled_times(self) -> list[datetime]:
        """Return the times of the runs that the scheduler has made, also of those to come."""
        runs: list[dict[str, Any]] = []
        body = {"flows": {"name": {"any_": ["batch-inference"]}}, "sort": "ID_DESC", "limit": 200}
        while page := ask(self.api, "/flow_runs/filter", {**body, "offset": len(runs)}):
            runs += page
        return sorted(datetime.fromisoformat(run["expected_start_time"]) for run in runs if run["auto_scheduled"])

    def has_run_of(self, time: datetime) -> bool:
        sleep(0.3)  # each answer costs the server time
        with suppress(TimeoutError):  # a busy server
            return time in self.scheduled_times()
        return False


@pytest.fixture
def week(tmp_path: Path) -> Iterator[Week]:
    week = Week(tmp_path)
    try:
        week.begin()
        yield week
    finally:
        for process in reversed(week.processes):
            end(process)


def test_the_scheduler_of_the_server_makes_one_run_for_each_hour_of_a_week(week: Week) -> None:
    for time in TIMES[2::3]:  # the scheduler makes three runs ahead
        wait_for(f"the run of {time}", partial(week.has_run_of, time), AT_MOST)
        week.clock.move(time + timedelta(seconds=5))
    assert [time for time in week.scheduled_times() if time <= week.clock.now()] == TIMES
