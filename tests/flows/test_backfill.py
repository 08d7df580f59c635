"""Backfills in this process, on the session's Ray and Prefect server, and their plans."""

import json
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.flow_engine import run_flow
from prefect.states import Pending

from overnight.flows.backfill_plan import left_out, planned
from overnight.flows.job.loading import JobFile, load_job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.state import lease
from overnight.tasks.state.run import write_json
from tests.flows.conftest import Overnight

FIRST, LAST = date(2026, 2, 27), date(2026, 3, 2)  # over a month's end
DAYS = ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
BROKEN = b"no Parquet file"

Backfill = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job of four days of ten rows each, without a model."""
    for number, day in enumerate(DAYS):
        write_input(tmp_path, day, range(number * 10, number * 10 + 10))
    job = {
        "name": "tiny",
        "source": {"kind": "parquet", "path": str(tmp_path / "in/date={partition}")},
        "preprocess": [{"kind": "derive_columns", "columns": {"twice": "x * 2"}}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path


@pytest.fixture
def run(prefect_api: str, ray_session: None, folder: Path) -> Backfill:
    """Runs a backfill of the folder's job, over all days unless it says otherwise."""
    from overnight.flows.backfill import backfill

    def run(**options: Any) -> Any:
        days = {} if "resume" in options else {"start": FIRST, "end": LAST}
        return backfill(**days | options, job=str(folder / "job.yaml"))

    return run


def write_input(folder: Path, day: str, rows: range) -> Path:
    path = folder / f"in/date={day}/a.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": rows}), path)
    return path


def spoil(folder: Path, day: str) -> None:
    (folder / f"in/date={day}/a.parquet").write_bytes(BROKEN)


def ledger(folder: Path) -> dict[str, PartitionStatus]:
    return {entry.partition: entry for entry in read_ledger(load_job(folder / "job.yaml"), FIRST, LAST)}


def statuses(folder: Path) -> list[str]:
    return [entry.status for entry in ledger(folder).values()]


def generations(folder: Path) -> dict[str, list[str]]:
    """Every publish that there has been of each day."""
    found = {day: folder / f"out/_overnight/date={day}/receipts" for day in DAYS}
    return {day: sorted(path.stem for path in place.glob("*.json")) for day, place in found.items()}


def steps(folder: Path, **options: Any) -> list[tuple[str, str, bool]]:
    """A plan in short: partition, status, whether it is forced."""
    plan = planned(JobFile(folder / "job.yaml"), "new", FIRST, LAST, **options)[2]
    return [(step.partition, step.entry.status, step.force) for step in plan]


def record_of(folder: Path) -> dict[str, Any]:
    [path] = (folder / "out/_overnight/backfills").glob("*.json")
    return dict(json.loads(path.read_text()))


@pytest.mark.slow
def test_one_failure_does_not_stop_the_rest_and_a_resume_runs_only_what_is_not_done(
    run: Backfill, folder: Path
) -> None:
    spoil(folder, DAYS[1])
    with pytest.raises(OvernightError, match=r"1 of 4 partitions failed, first 2026-02-28: .*quarantined"):
        run()
    assert statuses(folder) == ["published", "failed", "published", "published"]
    before = generations(folder)
    assert [len(found) for found in before.values()] == [1, 0, 1, 1]
    write_input(folder, DAYS[1], range(10))
    entries = run(resume=record_of(folder)["id"])
    assert [(entry["partition"], entry["status"], entry["rows_out"]) for entry in entries] == [
        (DAYS[1], "published", 10)
    ]
    assert statuses(folder) == ["published"] * 4
    after = generations(folder)
    assert {day: after[day] for day in DAYS if day != DAYS[1]} == {day: before[day] for day in DAYS if day != DAYS[1]}
    assert run(resume=record_of(folder)["id"]) == []


@pytest.mark.slow
def test_it_stops_after_a_failure_if_asked_to(run: Backfill, folder: Path) -> None:
    spoil(folder, DAYS[2])
    with pytest.raises(OvernightError, match="1 of 4 partitions failed"):
        run(order="newest", stop_on_failure=True)
    assert statuses(folder) == ["missing", "missing", "failed", "published"]


@pytest.mark.slow
def test_all_runs_published_partitions_again_once_and_says_why_in_their_receipts(run: Backfill, folder: Path) -> None:
    run()
    entries = run(select=["all"], reason="new weights")
    assert [entry["status"] for entry in entries] == ["published"] * 4
    assert [len(found) for found in generations(folder).values()] == [2] * 4
    receipts = [entry.receipt or {} for entry in ledger(folder).values()]
    assert {receipt["reason"] for receipt in receipts} == {"new weights"}
    [backfill] = {receipt["backfill"] for receipt in receipts}
    assert run(resume=backfill) == []
    assert [len(found) for found in generations(folder).values()] == [2] * 4


@pytest.mark.slow
def test_overridden_settings_hold_for_all_of_a_backfill_and_when_it_is_resumed(run: Backfill, folder: Path) -> None:
    spoil(folder, DAYS[3])
    with pytest.raises(OvernightError):
        run(settings=["preprocess.0.columns.twice=x * 20"])
    write_input(folder, DAYS[3], range(10))
    run(resume=record_of(folder)["id"])
    for number, day in enumerate(DAYS[:3]):
        [file] = (folder / f"out/date={day}").glob("*.parquet")
        assert pq.read_table(file)["twice"].to_pylist() == [x * 20 for x in range(number * 10, number * 10 + 10)]
    [file] = (folder / f"out/date={DAYS[3]}").glob("*.parquet")
    assert pq.read_table(file)["twice"].to_pylist() == [x * 20 for x in range(10)]
    assert statuses(folder) == ["stale"] * 4  # with the job file's own settings they were not made
    assert "twice: x * 20 -> x * 2" in ledger(folder)[DAYS[0]].why[0]


@pytest.mark.slow
def test_several_partitions_run_at_the_same_time(run: Backfill, folder: Path) -> None:
    run(max_concurrent=2)
    receipts = sorted((entry.receipt or {} for entry in ledger(folder).values()), key=lambda found: found["started_at"])
    assert [receipt["rows_out"] for receipt in receipts] == [10] * 4
    assert any(later["started_at"] < earlier["finished_at"] for earlier, later in pairwise(receipts))


@pytest.mark.slow
def test_each_partition_is_a_flow_run_below_the_backfills(run: Backfill, folder: Path) -> None:
    spoil(folder, DAYS[1])
    with pytest.raises(OvernightError):
        run(end=date(2026, 2, 28))
    label = f"backfill:{record_of(folder)['id']}"
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[label])))
        children = sorted((child for child in found if child.parent_task_run_id), key=lambda child: child.name)
        parents = {client.read_task_run(child.parent_task_run_id).flow_run_id for child in children}
        [parent] = [client.read_flow_run(parent) for parent in parents]
    assert [child.name for child in children] == ["tiny/2026-02-27", "tiny/2026-02-28"]
    assert parent.name == "tiny/2026-02-27..2026-02-28"
    assert parent.state_name == "Failed"
    assert parent.state.message.startswith("failed: 1 of 2 partitions failed, first 2026-02-28: ")


@pytest.mark.slow
def test_the_plan_follows_the_ledger(run: Backfill, folder: Path) -> None:
    spoil(folder, DAYS[1])
    with pytest.raises(OvernightError):
        run(end=date(2026, 3, 1))
    write_input(folder, DAYS[2], range(5))  # changed since it was published
    missing, failed = (DAYS[3], "missing", False), (DAYS[1], "failed", False)
    published, stale = (DAYS[0], "published", True), (DAYS[2], "stale", False)
    assert steps(folder) == [failed, missing]
    assert steps(folder, order="newest") == [missing, failed]
    assert steps(folder, select=["missing"]) == [missing]
    assert steps(folder, select=["stale"]) == [stale]
    assert steps(folder, select=["all"]) == [published, failed, stale, missing]
    plan = planned(JobFile(folder / "job.yaml"), "new", FIRST, LAST)[2]
    assert [step.rows for step in plan] == [10, 10]
    assert all(step.seconds and step.seconds > 0 for step in plan)
    assert record_of(folder)["partitions"][0] == {"partition": DAYS[0], "status": "missing", "force": False}


def test_quarantined_rows_of_published_partitions_are_selected_apart_from_whole_partitions(folder: Path) -> None:
    run = describe_run(load_job(folder / "job.yaml"), DAYS[0])
    for day, quarantined in zip(DAYS, (2, 0), strict=False):
        receipt = {"job": run.job, "generation": "g", "fingerprint": run.fingerprint, "rows_in": 9, "rows_resumed": 0}
        receipt |= {"rows_quarantined": quarantined, "seconds": 1.0, "inputs": ""}
        write_json(replace(run, partition=day).ledger / "receipt.json", receipt)
    plan = planned(JobFile(folder / "job.yaml"), "new", FIRST, LAST, select=["quarantined", "missing"])[2]
    assert [(step.partition, step.is_retry, step.force, step.rows) for step in plan] == [
        (DAYS[0], True, False, 2),
        (DAYS[2], False, False, 9),
        (DAYS[3], False, False, 9),
    ]
    assert plan[0].why == ["published with 2 quarantined rows, which run again"]
    assert planned(JobFile(folder / "job.yaml"), "new", FIRST, LAST, select=["missing"])[2][0].partition == DAYS[2]


def test_what_a_backfill_leaves_out_is_counted_by_status_and_says_how_to_run_it(folder: Path) -> None:
    run = describe_run(load_job(folder / "job.yaml"), DAYS[0])
    receipt = {"job": run.job, "generation": "g", "rows_in": 9, "rows_resumed": 0, "rows_quarantined": 0}
    receipt |= {"seconds": 1.0, "inputs": "", "ingredients": run.ingredients}
    for day, fingerprint in zip(DAYS, (run.fingerprint, "another"), strict=False):
        write_json(replace(run, partition=day).ledger / "receipt.json", receipt | {"fingerprint": fingerprint})
    job, request, steps = planned(JobFile(folder / "job.yaml"), "new", FIRST, LAST)
    assert left_out(job, request, steps) == "1 published, 1 stale (add stale to select)"
    assert left_out(job, request, []) == "2 missing (add missing to select), 1 published, 1 stale (add stale to select)"


def test_a_partition_that_a_run_holds_is_left_to_it(folder: Path) -> None:
    held = folder / f"out/_overnight/date={DAYS[0]}"
    from overnight.tasks.storage.location import Location

    with lease.held(Location(str(held)), "somebody"):
        assert ledger(folder)[DAYS[0]].why == (f"attempt somebody on {socket.gethostname()}",)
        assert [step[0] for step in steps(folder, select=["all"])] == DAYS[1:]
    assert [step[0] for step in steps(folder, select=["all"])] == DAYS


def test_the_flow_says_in_its_log_and_its_artifact_why_it_has_nothing_to_do(
    prefect_api: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from overnight.flows.backfill import backfill

    asked: dict[str, Any] = {"start": FIRST, "end": LAST, "select": ["failed"], "dry_run": True}
    assert backfill(**asked, job=str(folder / "job.yaml")) == []
    words = f"tiny: no partition from {DAYS[0]} to {DAYS[-1]} is failed; found 4 missing."
    assert words in caplog.messages
    artifact: Any = Artifact.get("tiny-backfill-plan")
    assert str(artifact.description).endswith(words)
    assert json.loads(str(artifact.data)) == [{"partition": "none", "why": words}]


def test_a_dry_run_runs_nothing_and_keeps_nothing(run: Backfill, folder: Path) -> None:
    plan = run(dry_run=True)
    assert [(step["partition"], step["status"], step["why"]) for step in plan] == [
        (day, "missing", ["never run"]) for day in DAYS
    ]
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": LAST, "end": FIRST}, "expected an end that is not before the start, found 2026-03-02 to 2026-02-27"),
        ({"start": None, "end": LAST}, "expected the first and the last day"),
        ({"resume": "0f3c9d21"}, "expected the id of a backfill of tiny, found 0f3c9d21, which has no record"),
        ({"resume": "../../etc"}, "expected an id such as"),
    ],
)
def test_a_backfill_that_cannot_be_says_what_is_expected(
    run: Backfill, folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobError, match=message):
        run(**options)


def test_a_job_without_dates_has_no_backfill(run: Backfill, folder: Path) -> None:
    job = yaml.safe_load((folder / "job.yaml").read_text())
    job["source"]["path"] = str(folder / "in")
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    with pytest.raises(JobError, match="whose only partition is all"):
        run()


@pytest.mark.slow
def test_the_command_prints_the_partitions_of_its_range_and_exits_1_where_one_failed(
    overnight: Overnight, folder: Path
) -> None:
    spoil(folder, DAYS[1])
    range_ = ("--start", DAYS[0], "--end", DAYS[2])
    dry = overnight("backfill", "job.yaml", *range_, "--dry-run", "--json")
    assert [step["partition"] for step in json.loads(dry.stdout)] == DAYS[:3]
    done = overnight("backfill", "job.yaml", *range_, "--json")
    assert done.returncode == 1, done.stderr
    found = [(entry["partition"], entry["status"]) for entry in json.loads(done.stdout)]
    assert found == [(DAYS[0], "published"), (DAYS[1], "failed"), (DAYS[2], "published")]
    assert f"backfill {record_of(folder)['id']}\n" in done.stderr
    assert re.search(rf"{DAYS[0]} started: never run\n.*1 of 3: {DAYS[0]} published: 10 rows, 0 quar", done.stderr)
    assert f"2 of 3: {DAYS[1]} failed in " in done.stderr
    assert done.stderr.endswith(f"Run what is left: overnight backfill job.yaml --resume {record_of(folder)['id']}\n")
    rest = overnight("backfill", "job.yaml", "--start", DAYS[0], "--end", DAYS[2], "--select", "missing", "--dry-run")
    assert rest.stdout == f"tiny: no partition from {DAYS[0]} to {DAYS[2]} is missing; found 1 failed, 2 published.\n"
    nothing = overnight("backfill", "job.yaml", "--start", DAYS[0], "--end", DAYS[0], "--json")
    assert (nothing.returncode, json.loads(nothing.stdout)) == (0, [])
    in_words = overnight("backfill", "job.yaml", "--start", DAYS[0], "--end", DAYS[0]).stdout
    assert in_words == f"tiny: no partition from {DAYS[0]} to {DAYS[0]} is missing or failed; found 1 published.\n"
    pq.write_table(pa.table({"x": [7]}), folder / f"in/date={DAYS[0]}/later.parquet")
    in_words = overnight("backfill", "job.yaml", "--start", DAYS[0], "--end", DAYS[0]).stdout
    assert in_words.endswith("1 stale. To run the stale ones, add stale to select.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--start", "2026-02-30", "--end", "2026-03-01"),
        ("--start", DAYS[0]),
        ("--start", DAYS[1], "--end", DAYS[0]),
        ("--start", DAYS[0], "--end", DAYS[1], "--select", "every"),
        ("--start", DAYS[0], "--end", DAYS[1], "--max-concurrent", "0"),
        ("--resume", "0f3c9d21"),
    ],
)
def test_bad_usage_exits_2(overnight: Overnight, folder: Path, arguments: tuple[str, ...]) -> None:
    assert overnight("backfill", "job.yaml", *arguments).returncode == 2


@pytest.mark.parametrize(
    ("text", "options", "name"),
    [
        ("", {"start": DAYS[0], "end": DAYS[3]}, "tiny/2026-02-27..2026-03-02"),
        ("name: tiny", {"start": DAYS[0], "end": DAYS[3]}, "job/2026-02-27..2026-03-02"),
        ("", {"resume": "0f3c9d21"}, "tiny/resume 0f3c9d21"),
    ],
)
def test_a_backfill_is_named_after_its_job_or_the_file_and_what_it_is_to_run(
    prefect_api: str, folder: Path, text: str, options: dict[str, str], name: str
) -> None:
    from overnight.flows.backfill import backfill

    if text:
        (folder / "job.yaml").write_text(text)
    parameters = {**options, "dry_run": True, "job": str(folder / "job.yaml")}
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(backfill, parameters=parameters, state=Pending())
        ended: Any = run_flow(backfill, flow_run=flow_run, return_type="state")
        assert client.read_flow_run(flow_run.id).name == name
    assert ended.is_completed() == (not text and "start" in options)
