"""`overnight undo` as it is typed: what it prints, and what it refuses."""

from pathlib import Path

from tests.flows.ledger.test_undo import NEW, OLD, job_in, published, rows_of
from tests.overnight.cli.results_on_disk import typed, write_job


def test_the_rows_that_are_published_again_are_named_with_the_reason(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    first = published(job, OLD)["generation"]
    published(job, NEW)
    code, out, _ = typed("undo", tmp_path, "--reason", "wrong factor")
    assert (code, rows_of(job)) == (0, OLD)
    assert out.splitlines()[0] == f"j/all: 3 rows of {first} are published again"
    assert "(wrong factor)" in out.splitlines()[1]


def test_a_job_with_days_needs_the_day(tmp_path: Path) -> None:
    write_job(tmp_path)
    code, _, err = typed("undo", tmp_path)
    assert (code, "expected --partition D, the day to undo, found none" in err) == (2, True)
