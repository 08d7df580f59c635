"""Backfills in this process, on the session's Ray and Prefect server, and their plans."""

import json
import re
from collections.abc import Callable
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.flow_engine import run_flow
from prefect.states import Pending

from overnight.cli.main import main
from overnight.flows.backfill import backfill
from overnight.flows.backfill_plan import Request, Step, left_out, planned
from overnight.flows.job.loading import JobFile, load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.runs.attempt import Scope
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state import lease
from overnight.tasks.state.manifest import digest
from overnight.tasks.state.run import write_json
from overnight.tasks.storage.location import Location
from tests import jobs
from tests.flows.conftest import Overnight

FIRST, LAST = date(2026, 2, 27), date(2026, 3, 2)  # over a month's end
DAYS = ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
RANGE = ("--start", DAYS[0], "--end", DAYS[3])

Backfill = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job of four days of ten rows each, without a model."""
    jobs.write_days(tmp_path, DAYS, rows=10)
    step = {"kind": "derive_columns", "columns": {"twice": "id * 2"}}
    jobs.write_job(tmp_path / "job.yaml", name="tiny", preprocess=[step])
    return tmp_path


@pytest.fixture
def run(prefect_api: str, ray_session: None, folder: Path) -> Backfill:
    """Runs a backfill of the folder's job, over all days unless it says otherwise."""

    def run(**options: Any) -> Any:
        days = {} if "resume" in options else {"start": FIRST, "end": LAST}
        return backfill(**days | options, job=str(folder / "job.yaml"))

    return run


def take_away(folder: Path, day: str) -> None:
    (folder / "in" / day / "a.jsonl").unlink()


def ledger(folder: Path) -> dict[str, PartitionStatus]:
    return {entry.partition: entry for entry in read_ledger(load_job(folder / "job.yaml"), FIRST, LAST)}


def statuses(folder: Path) -> list[str]:
    return [entry.status for entry in ledger(folder).values()]


def generations(folder: Path) -> dict[str, list[str]]:
    """Every publish that there has been of each day."""
    found = {day: folder / f"out/_overnight/date={day}/receipts" for day in DAYS}
    return {day: sorted(path.stem for path in place.glob("*.json")) for day, place in found.items()}


def record_of(folder: Path) -> dict[str, Any]:
    [path] = (folder / "out/_overnight/backfills").glob("*.json")
    return dict(json.loads(path.read_text()))


def plan(folder: Path, **options: Any) -> tuple[Job, Request, list[Step]]:
    return planned(JobFile(folder / "job.yaml"), "new", **{"start": FIRST, "end": LAST} | options)


def steps(folder: Path, **options: Any) -> list[tuple[str, str, bool]]:
    """A plan in short: partition, status, whether it is forced."""
    return [(step.partition, step.entry.status, step.force) for step in plan(folder, **options)[2]]


@pytest.mark.slow
def test_one_failure_does_not_stop_the_rest_and_a_resume_runs_only_what_is_not_done_with_the_same_settings(
    run: Backfill, folder: Path
) -> None:
    take_away(folder, DAYS[1])
    with pytest.raises(OvernightError, match=f"1 of 4 partitions failed, first {DAYS[1]}: "):
        run(settings=["preprocess.0.columns.twice=id * 20"])
    backfill = record_of(folder)["id"]
    before = generations(folder)
    assert [len(found) for found in before.values()] == [1, 0, 1, 1]
    label = FlowRunFilter(tags=FlowRunFilterTags(all_=[f"backfill:{backfill}"]))
    with get_client(sync_client=True) as client:
        children = [child for child in client.read_flow_runs(flow_run_filter=label) if child.parent_task_run_id]
        assert sorted(child.name for child in children) == [f"tiny/{day}" for day in DAYS]
        [above] = {client.read_task_run(child.parent_task_run_id).flow_run_id for child in children}
        parent = client.read_flow_run(above)
    assert (parent.name, parent.state_name) == (f"tiny/{DAYS[0]}..{DAYS[3]}", "Failed")
    assert parent.state.message.startswith(f"failed: 1 of 4 partitions failed, first {DAYS[1]}: ")

    jobs.write_days(folder, [DAYS[1]], rows=10)
    entries = run(resume=backfill)
    assert [(entry["partition"], entry["status"], entry["rows_out"]) for entry in entries] == [
        (DAYS[1], "published", 10)
    ]
    after = generations(folder)
    assert after == before | {DAYS[1]: after[DAYS[1]]}
    for day in DAYS:
        [file] = (folder / f"out/date={day}").glob("*.parquet")
        assert pq.ParquetFile(file).read()["twice"].to_pylist() == [n * 20 for n in range(10)]
    assert statuses(folder) == ["stale"] * 4  # with the job file's own settings they were not made
    assert "twice: id * 20 -> id * 2" in ledger(folder)[DAYS[0]].why[0]
    assert run(resume=backfill) == []


@pytest.mark.slow
def test_several_partitions_run_at_once_and_all_runs_published_ones_again_once_with_the_reason_in_their_receipts(
    run: Backfill, folder: Path
) -> None:
    run(max_concurrent=2)
    receipts = sorted((entry.receipt or {} for entry in ledger(folder).values()), key=lambda found: found["started_at"])
    assert [receipt["rows_out"] for receipt in receipts] == [10] * 4
    assert any(later["started_at"] < earlier["finished_at"] for earlier, later in pairwise(receipts))

    entries = run(select=["all"], reason="new weights", end=date(2026, 2, 28))
    assert [entry["status"] for entry in entries] == ["published"] * 2
    again = [ledger(folder)[day].receipt or {} for day in DAYS[:2]]
    assert {receipt["reason"] for receipt in again} == {"new weights"}
    [backfill] = {receipt["backfill"] for receipt in again}
    assert run(resume=backfill) == []
    assert [len(found) for found in generations(folder).values()] == [2, 2, 1, 1]


def publish(folder: Path, day: str, **changes: Any) -> None:
    """Write what a publish of nine rows leaves in the ledger of a day."""
    job = load_job(folder / "job.yaml")
    run = describe_run(job, day)
    receipt = {"job": run.job, "generation": "g", "fingerprint": run.fingerprint, "ingredients": run.ingredients}
    receipt |= {"inputs": digest(stream_inputs(job.source, day)), "rows_in": 9, "rows_resumed": 0, "seconds": 1.0}
    write_json(run.ledger / "receipt.json", receipt | {"rows_quarantined": 0} | changes)


def test_the_plan_follows_the_ledger_and_what_it_leaves_out_is_counted_with_how_to_run_it(folder: Path) -> None:
    failure = {"job": "tiny", "stage": "infer", "error_message": "x", "failed_at": "2026-03-01T00:00:00Z"}
    publish(folder, DAYS[0], rows_quarantined=2)
    write_json(describe_run(load_job(folder / "job.yaml"), DAYS[1]).ledger / "failure.json", failure | {"attempt": "a"})
    publish(folder, DAYS[2], fingerprint="another")
    published, failed = (DAYS[0], "published", True), (DAYS[1], "failed", False)
    stale, missing = (DAYS[2], "stale", False), (DAYS[3], "missing", False)
    assert steps(folder) == [failed, missing]
    assert steps(folder, order="newest") == [missing, failed]
    assert steps(folder, select=["missing"]) == [missing]
    assert steps(folder, select=["stale"]) == [stale]
    assert steps(folder, select=["all"]) == [published, failed, stale, missing]

    job, request, chosen = plan(folder)
    assert [(step.rows, step.seconds) for step in chosen] == [(9, 1.0)] * 2
    assert left_out(job, request, chosen) == "1 published, 1 stale (add stale to select)"
    assert left_out(job, request, []) == (
        "1 failed (add failed to select), 1 missing (add missing to select), 1 published, 1 stale (add stale to select)"
    )
    retries = plan(folder, select=["quarantined", "missing"])[2]
    assert [(step.partition, step.is_retry, step.force, step.rows) for step in retries] == [
        (DAYS[0], True, False, 2),
        (DAYS[3], False, False, 9),
    ]
    assert retries[0].why == ["published with 2 quarantined rows, which run again"]

    publish(folder, DAYS[3], inputs="before a file changed")
    assert steps(folder, select=["stale"]) == [stale, (DAYS[3], "stale", False)]


def test_a_late_change_that_runs_no_row_is_estimated_as_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(folder, DAYS[0], inputs="before a file was deleted")
    monkeypatch.setattr(Scope, "plan", {"rows_reused": 9, "rows_to_run": 0, "why": ["inputs changed: 1 gone"]})
    [step] = plan(folder, select=["stale"], is_dry=True)[2]
    assert (step.rows, step.entry.plan["rows_reused"]) == (0, 9)


def test_a_partition_that_a_run_holds_is_left_to_it(folder: Path) -> None:
    with lease.held(Location(f"{folder}/out/_overnight/date={DAYS[0]}"), "somebody"):
        assert ledger(folder)[DAYS[0]].why[0].startswith("attempt somebody on ")
        assert [step[0] for step in steps(folder, select=["all"])] == DAYS[1:]
    assert [step[0] for step in steps(folder, select=["all"])] == DAYS


def test_a_dry_run_shows_the_plan_or_why_there_is_none_and_keeps_nothing(
    prefect_api: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked: dict[str, Any] = {"start": FIRST, "end": LAST, "dry_run": True, "job": str(folder / "job.yaml")}
    assert [(step["partition"], step["status"], step["why"]) for step in backfill(**asked)] == [
        (day, "missing", ["never run"]) for day in DAYS
    ]
    assert backfill(**asked, select=["failed"]) == []
    why = f"tiny: no partition from {DAYS[0]} to {DAYS[3]} is failed; found 4 missing."
    assert why in caplog.messages
    artifact: Any = Artifact.get("tiny-backfill-plan")
    assert str(artifact.description).endswith(why)
    assert json.loads(str(artifact.data)) == [{"partition": "none", "why": why}]
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"start": LAST, "end": FIRST}, "2026-03-02 to 2026-02-27"),
        ({"start": None}, "the first and the last day"),
        ({"resume": "0f3c9d21"}, "0f3c9d21, which has no record"),
        ({"resume": "../../etc"}, "an id such as"),
        ({"path": "in"}, "whose only partition is all"),
    ],
)
def test_a_backfill_that_cannot_be_says_what_is_expected(folder: Path, options: dict[str, Any], fact: str) -> None:
    if "path" in options:
        source = {"kind": "jsonl", "path": f"{folder}/{options.pop('path')}"}
        jobs.write_job(folder / "job.yaml", source=source)
    file, resume = JobFile(folder / "job.yaml"), options.pop("resume", "")
    days = {"start": None, "end": None} if resume else {"start": FIRST, "end": LAST} | options
    with pytest.raises(JobError, match=fact):
        planned(file, resume or "new", **days, is_resumed=bool(resume))


@pytest.mark.slow
def test_the_command_prints_the_partitions_of_its_range_and_stops_after_a_failure_if_asked_to(
    overnight: Overnight, folder: Path
) -> None:
    take_away(folder, DAYS[2])
    dry = overnight("backfill", "job.yaml", *RANGE, "--dry-run", "--json")
    assert [step["partition"] for step in json.loads(dry.stdout)] == DAYS
    done = overnight("backfill", "job.yaml", *RANGE, "--order", "newest", "--stop-on-failure", "--json")
    assert done.returncode == 1, done.stderr
    found = {entry["partition"]: entry["status"] for entry in json.loads(done.stdout)}
    assert found == dict(zip(DAYS, ("missing", "missing", "failed", "published"), strict=True))
    backfill = record_of(folder)["id"]
    assert f"backfill {backfill}\n" in done.stderr
    assert re.search(rf"{DAYS[3]} started: never run\n(?s:.*)1 of 4: {DAYS[3]} published: 10 rows, 0 quar", done.stderr)
    assert f"2 of 4: {DAYS[2]} failed in " in done.stderr
    assert done.stderr.endswith(f"Run what is left: overnight backfill job.yaml --resume {backfill}\n")
    rest = ("backfill", "job.yaml", "--start", DAYS[2], "--end", DAYS[3], "--select", "missing")
    words = f"tiny: no partition from {DAYS[2]} to {DAYS[3]} is missing; found 1 failed, 1"
    assert overnight(*rest).stdout == f"{words} published.\n"
    (folder / "in" / DAYS[3] / "later.jsonl").write_text('{"id": 1}\n')
    assert overnight(*rest).stdout == f"{words} stale. To run the stale ones, add stale to select.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--start", "2026-02-30", "--end", "2026-03-01"),
        ("--start", DAYS[0]),
        (*RANGE, "--select", "every"),
        (*RANGE, "--max-concurrent", "0"),
        ("--resume", "0f3c9d21"),
    ],
)
def test_bad_usage_exits_2(folder: Path, arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(main, ["backfill", str(folder / "job.yaml"), "--dry-run", *arguments]).exit_code == 2


def test_a_backfill_that_cannot_begin_is_named_after_its_job_and_what_it_is_to_run(
    prefect_api: str, folder: Path
) -> None:
    with get_client(sync_client=True) as client:
        parameters = {"resume": "0f3c9d21", "job": str(folder / "job.yaml")}
        flow_run = client.create_flow_run(backfill, parameters=parameters, state=Pending())
        ended: Any = run_flow(backfill, flow_run=flow_run, return_type="state")
        assert client.read_flow_run(flow_run.id).name == "tiny/resume 0f3c9d21"
    assert ended.is_failed()
