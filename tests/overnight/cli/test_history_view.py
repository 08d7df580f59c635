"""The table of `overnight history`, and the regressions with what changed."""

from pathlib import Path

import pytest

from tests.flows.history.states import fail, publish, receipt
from tests.overnight.cli.results_on_disk import typed, write_job


def write_history(tmp_path: Path) -> Path:
    """A job with a slow day, on which the version of torch changed, and a failed day."""
    write_job(tmp_path)
    state = tmp_path / "out/_overnight"
    for day in range(1, 4):
        publish(state, receipt(f"2026-01-0{day}"), 0.9)
    publish(state, receipt("2026-01-04", 10.0, versions={"torch": "2.1"}, generation="g\x1b[31m"), 0.9)
    fail(state, "2026-01-05", "no \x1b[31m memory\nsecond line")
    return tmp_path


@pytest.mark.parametrize("width", [80, 160])
def test_the_newest_line_is_first_and_a_regression_stands_with_what_changed(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_history(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = typed("history", folder)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    days = [line for line in lines if line.startswith("2026-01-0")]
    assert code == 0
    assert [day[:12] for day in days[:5]] == [f"2026-01-0{day} {'F' if day == 5 else 'P'}" for day in (5, 4, 3, 2, 1)]
    assert "slower" in days[1]
    begin = lines.index("2026-01-04 published")
    assert lines[begin + 1 : begin + 3] == [
        "worse slower: 10 rows/s, before 100 rows/s",
        "changed versions: torch 2.0 -> 2.1",
    ]
    assert any(line.startswith("2026-01-05 failed: infer: no ") for line in lines)
    assert "\x1b" not in out
    assert ("g-2026-01-03" in out) == (width > 150)
    assert all(len(line) <= width for line in out.splitlines()[:8])


def test_a_job_that_never_ran_says_so(tmp_path: Path) -> None:
    write_job(tmp_path)
    assert typed("history", tmp_path)[1] == "daily: no partition of it has run here\n"
