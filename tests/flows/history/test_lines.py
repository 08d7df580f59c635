"""A line for each partition, from the state folder alone."""

from pathlib import Path

from overnight.flows.history.history import read_history
from overnight.flows.history.lines import directories_of
from overnight.tasks.storage.location import Location
from tests.flows.history.states import fail, publish, receipt


def test_a_line_has_the_figures_of_the_receipt_and_of_its_report(tmp_path: Path) -> None:
    settings = {"price_per_cpu_hour": 3600.0}
    publish(tmp_path, receipt("2026-01-01", rows_quarantined=20, settings=settings), agreement=0.9)
    again = tmp_path / "date=2026-01-01/generations/g-2026-01-01/attempts/another"
    again.mkdir()
    (again / "timeline").write_text("{}")
    [line] = read_history(Location(str(tmp_path))).lines
    shown = line.as_json()
    assert (shown["rows_per_second"], shown["quarantined"], shown["agreement"]) == (100.0, 0.02, 0.9)
    assert (shown["attempts"], shown["generation"], shown["seconds"]) == (2, "g-2026-01-01", 12.5)
    assert shown["cost_per_1000_rows"] == 8.0  # of 8 s in its stages
    assert line.report == "report.html"


def test_a_resumed_run_has_no_price_because_its_hours_are_those_of_some_rows(tmp_path: Path) -> None:
    settings = {"price_per_cpu_hour": 3600.0}
    publish(tmp_path, receipt("2026-01-01", rows_resumed=5, settings=settings))
    assert read_history(Location(str(tmp_path))).lines[0].cost is None


def test_a_failed_partition_has_a_line_with_the_reason(tmp_path: Path) -> None:
    publish(tmp_path, receipt("2026-01-01"))
    fail(tmp_path, "2026-01-02", "no memory")
    line = read_history(Location(str(tmp_path))).lines[1]
    assert (line.entry.status, line.entry.why) == ("failed", ("infer: no memory",))
    assert (line.rate, line.report) == (None, "report.html")


def test_records_of_another_job_are_no_part_of_the_history(tmp_path: Path) -> None:
    publish(tmp_path, receipt("2026-01-01", job="another"))
    publish(tmp_path, receipt("2026-01-02"))
    history = read_history(Location(str(tmp_path)), "daily")
    assert [line.entry.status for line in history.lines] == ["missing", "published"]
    assert read_history(Location(str(tmp_path))).job == "daily"  # that of the newest record


def test_a_job_without_days_has_a_line_for_each_publish(tmp_path: Path) -> None:
    for generation, rate in (("a", 100.0), ("b", 10.0)):
        publish(tmp_path, receipt("all", rate, generation=generation))
    lines = read_history(Location(str(tmp_path))).lines
    assert [line.receipt["generation"] for line in lines] == ["a", "b"]
    assert [line.report for line in lines] == ["reports/a.html", "report.html"]
    assert [remark.kind for remark in lines[1].regressions] == ["slower"]
    assert len(read_history(Location(str(tmp_path)), newest=1).lines) == 1


def test_a_range_is_compared_with_what_came_before_it(tmp_path: Path) -> None:
    for day in range(1, 15):
        publish(tmp_path, receipt(f"2026-01-{day:02}", 100.0 if day < 9 else 10.0))
    state = Location(str(tmp_path))
    newest = read_history(state, newest=6).lines
    assert [line.entry.partition[-2:] for line in newest] == ["09", "10", "11", "12", "13", "14"]
    assert [bool(line.regressions) for line in newest] == [True, False, False, False, False, False]
    between = read_history(state, first="2026-01-08", last="2026-01-09").lines
    assert [bool(line.regressions) for line in between] == [False, True]
    assert read_history(state, first="2027-01-01").lines == []


def test_other_folders_of_a_state_are_no_partitions() -> None:
    names = [
        "all",
        "backfills",
        "samples",
        "date=2026-01-02",
        "day=2026-01-01",
        "date=D",
        "x/date=2026-01-01",
        "date=2026-02-30",
    ]
    assert directories_of(names) == {"2026-01-01": "day=2026-01-01", "2026-01-02": "date=2026-01-02", "all": "all"}
