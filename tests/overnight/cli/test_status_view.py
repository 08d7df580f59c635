"""How partitions are shown: in the terminal at any width, and as artifacts in the Prefect UI."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from overnight.cli.backfill import show_outcomes, show_steps
from overnight.cli.status_view import show_status
from overnight.flows.backfill_plan import Step
from overnight.flows.job.loading import JobFile
from overnight.flows.ledger import calendar_view
from overnight.flows.ledger.artifacts import calendar_markdown, partitions_shown
from overnight.flows.ledger.partition_status import STATUSES, PartitionStatus, Status
from overnight.tasks.engine.progress import Interval
from overnight.tasks.errors import OvernightError
from tests import jobs
from tests.flows.conftest import RunJob
from tests.prefect_api import ask

RECEIPT = {
    **{"rows_in": 9, "rows_out": 12345, "rows_quarantined": 3, "seconds": 61.5},
    "finished_at": "2026-01-03T02:00:00Z",
}


def entry(day: date | str, status: Status, *why: str, since: str | None = None) -> PartitionStatus:
    receipt = RECEIPT if status in ("published", "stale") else None
    return PartitionStatus(str(day), status, why, receipt, None, since=since)


def days(first: str, statuses: list[Status]) -> list[PartitionStatus]:
    start = date.fromisoformat(first)
    return [entry(start + timedelta(number), status) for number, status in enumerate(statuses)]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What `overnight status` prints at a width, as lines."""

    def show(entries: list[PartitionStatus], width: int = 80) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        show_status("numbers", entries)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return show


@pytest.mark.parametrize("width", [80, 120])
def test_a_month_is_a_row_that_fits_and_every_status_has_a_mark_of_its_own(shown: Any, width: int) -> None:
    lines = shown(days("2024-02-27", ["published", "missing", "failed", "stale", "running"]), width)
    assert max(map(len, lines)) <= width
    months = [line[:71].rstrip() for line in lines if line.startswith("2024-0") and "since" not in line][:2]
    assert months == [f"2024-02  {'':52}P M F", "2024-03  S R"]
    legend = next(line for line in lines if line.startswith("P "))
    assert legend == "P 1 published  M 1 missing  F 1 failed  S 1 stale  R 1 running"


def test_tokens_and_cost_have_columns_where_a_partition_has_them(shown: Any) -> None:
    receipt = RECEIPT | {"spent": {"answers": 3, "tokens": 1500, "cost": 0.5}}
    failure = {"spent": {"answers": 3, "tokens": 70, "cost": None}, "attempt": "a"}
    entries = [
        PartitionStatus("2026-01-01", "published", (), RECEIPT, None),
        PartitionStatus("2026-01-02", "published", (), receipt, None),
        PartitionStatus("2026-01-03", "failed", ("infer: budget.tokens",), None, failure),
    ]
    lines = shown(entries)
    assert any(
        line.split() == [*["published", "rows", "quarantined", "seconds", "tokens", "cost", "at", "(UTC)"]]
        for line in lines
    )
    assert any(line.split()[:6] == ["2026-01-02", "12,345", "3", "61.5", "1,500", "0.5"] for line in lines)
    assert any(line.split()[:5] == ["2026-01-01", "12,345", "3", "61.5", "2026-01-03"] for line in lines)
    assert any("failed (70 tokens spent): infer: budget.tokens" in line for line in lines)
    assert not any("tokens" in line for line in shown(entries[:1]))


def test_two_years_take_a_line_a_month_and_years_of_nothing_take_one(shown: Any) -> None:
    many = days("2024-01-01", ["published"] * 731)
    assert sum(line.startswith("202") and "P P" in line for line in shown(many)) == 24
    old = [entry("1970-01-05", "published"), *days("1970-01-06", ["missing"] * 18000), *days("2026-01-01", ["failed"])]
    lines = shown(old)
    assert any("all days missing in 591 months" in line for line in lines)
    assert len(lines) < 30


def test_what_is_not_published_is_told_newest_first_and_alike_neighbours_together(shown: Any) -> None:
    entries = [
        *[entry(f"2026-01-0{day}", "stale", "settings changed: shuffle.seed: 0 -> 1") for day in (1, 2, 3)],
        entry("2026-01-04", "published"),
        entry("2026-01-05", "failed", "infer: no memory [left]", since="2026-01-06T02:03:04.000Z"),
    ]
    lines = shown(entries)
    first = lines.index("not published") + 1
    assert [" ".join(line.split()) for line in lines[first : first + 2]] == [
        "2026-01-05 failed since 2026-01-06 02:03: infer: no memory [left]",
        "2026-01-01 to 2026-01-03 (3) stale: settings changed: shuffle.seed: 0 -> 1",
    ]
    assert "2026-01-04 12,345 3 61.5 2026-01-03 02:00" in [" ".join(line.split()) for line in lines]


def test_the_reason_of_a_failure_is_in_the_line_of_its_partition_however_long_it_is(shown: Any) -> None:
    why = f"ingest: expected {'a file, ' * 30}found none. The first:\n  a.jpg\n2 quarantined rows"
    [line] = [line for line in shown([entry("2026-01-05", "failed", why)], 40) if "failed: " in line]
    assert line == f"2026-01-05  failed: ingest: expected {'a file, ' * 30}found none. The first: a.jpg"


@pytest.mark.parametrize("width", [40, 80])
def test_dates_and_statuses_of_a_backfill_are_never_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    why = f"ingest: expected {'a file, ' * 30}found [none]"
    entries = [entry("2026-01-04", "published"), entry("2026-01-05", "failed", why)]
    show_outcomes(jobs.load(tmp_path), entries)
    show_steps(jobs.load(tmp_path), [Step(found, False, 12345, Interval(61.5, 50.0, 80.0), 1.5) for found in entries])
    lines = capsys.readouterr().out.splitlines()
    for day, status in (("2026-01-04", "published"), ("2026-01-05", "failed")):
        assert sum(line.startswith(day) and status in line for line in lines) == 2, lines
    assert width < 80 or lines[1].split() == ["2026-01-04", "published", "12,345", "3", "62"]


def test_a_plan_has_the_time_of_each_partition_with_its_interval_and_its_cost_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    day = entry("2026-01-04", "missing")
    show_steps(jobs.load(tmp_path), [Step(day, False, 1200, Interval(61.5, 50.0, 80.0), 1.5)] * 2)
    header, first, _, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["partition", "status", "rows,", "about", "time", "80", "%", "cost", "why"]
    assert " ".join(first.split()) == "2026-01-04 missing 1,200 1 min 2 s 50 s to 1 min 20 s 1.50 never run"
    assert last.endswith("2,400 rows and 2 min 3 s one after the other (80 %: 1 min 38 s to 2 min 34 s), cost 3.00")
    show_steps(jobs.load(tmp_path), [Step(day, False, None, None)])
    assert "cost" not in capsys.readouterr().out


def test_of_many_that_are_not_published_the_newest_twenty_are_told(shown: Any) -> None:
    many = days("2026-01-01", ["failed"] * 30)
    lines = shown([entry(day.partition, "failed", f"why {number}") for number, day in enumerate(many)])
    assert sum("why" in line for line in lines) == 20
    assert any("why 29" in line for line in lines)
    assert lines[-1] == "and 10 more"


def test_the_newest_unpublished_partitions_of_all_regions_are_first() -> None:
    names = ["2026-03-01T05,eu", "2026-03-01T07,eu", "2026-03-01T04,us", "2026-03-01T06,us"]
    ranges = calendar_view.unpublished([entry(name, "failed", name) for name in names])
    assert [stretch.name for stretch in ranges] == sorted(names, reverse=True)


def test_the_last_line_names_the_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = jobs.load(tmp_path)
    show_status("numbers", [entry("2026-01-02", "published")], job.reports)
    last_line = f"reports: {tmp_path}/out/_overnight/date=D/report.html"
    assert capsys.readouterr().out.splitlines()[-1] == last_line


def test_a_job_without_days_has_no_calendar(shown: Any) -> None:
    lines = shown([entry("all", "published")])
    assert (lines[0], any(line.startswith("P ") for line in lines)) == ("numbers: published", False)


def test_the_calendar_in_markdown_has_a_table_a_month_with_the_weekdays_right() -> None:
    later = entry("2026-02-02", "stale", "a|<b>")
    lines = calendar_markdown([*days("2026-01-30", ["published", "failed", "missing"]), later]).splitlines()
    weekdays = "| Mon | Tue | Wed | Thu | Fri | Sat | Sun |"
    january, february = (lines.index(f"| {month} {weekdays}") for month in ("2026-01", "2026-02"))
    assert february < january
    assert lines[february + 2] == "| |  |  |  |  |  |  | 1 ⚪ M |"
    assert lines[february + 3].startswith("| | 2 🟡 S | 3 |")
    assert lines[january + 6] == "| | 26 | 27 | 28 | 29 | 30 🟢 P | 31 🔴 F |  |"
    assert any("a&#124;&lt;b&gt;" in line for line in lines)


def test_every_status_is_counted() -> None:
    assert calendar_view.count([entry("all", "stale")]) == {**dict.fromkeys(STATUSES, 0), "stale": 1}


def artifact(api: str, key: str) -> Any:
    found = ask(api, "/artifacts/latest/filter", {"artifacts": {"key": {"any_": [key]}}, "limit": 1})
    return found[0]["data"] if found else None


def test_a_run_shows_the_partitions_at_its_end_also_when_it_failed(
    run_job: RunJob, prefect_api: str, tmp_path: Path
) -> None:
    yesterday, good, bad = ((datetime.now(UTC).date() - timedelta(n)).isoformat() for n in (1, 2, 3))
    jobs.write_days(tmp_path, [good], rows=5)
    job = jobs.job(tmp_path, name="shown")

    def shown() -> dict[str, Any]:
        return {row["partition"]: row for row in json.loads(artifact(prefect_api, "shown-partitions"))}

    run_job(job, good, settings=["shuffle.kind=files"])
    assert (shown()[good]["status"], shown()[good]["rows out"]) == ("🟡 S stale", 5)  # by the job file it is
    with pytest.raises(OvernightError):
        run_job(job, bad)
    rows = shown()
    assert (list(rows), rows[bad]["status"]) == ([yesterday, good, bad], "🔴 F failed")
    assert rows[bad]["why"].startswith("ingest: source.path")
    assert "\n" not in rows[bad]["why"]
    assert f"**{bad}** failed" in artifact(prefect_api, "shown-calendar")


def test_one_partition_of_a_backfill_shows_nothing(prefect_api: str, tmp_path: Path) -> None:
    path = jobs.write_job(tmp_path / "job.yaml", name="silent")
    for backfill, is_shown in (("b1", False), ("", True)):
        with partitions_shown(JobFile(path), backfill=backfill):
            pass
        assert (artifact(prefect_api, "silent-partitions") is not None) == is_shown
