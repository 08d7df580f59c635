"""Look at a job from Python without running a partition: load it, find its statuses, preview it, or search its rows."""

import tempfile
from datetime import date
from typing import TYPE_CHECKING, Any

from overnight.api.job_files import AnyJob, Overrides, as_date, as_day, prepared
from overnight.api.process_state import leaves_no_trace, restored
from overnight.api.statuses import Statuses
from overnight.flows.job.model import Job
from overnight.tasks.storage.location import Location

if TYPE_CHECKING:
    from overnight.flows.compare.verification import Verification
    from overnight.flows.preview import Preview


@restored()
def load(job: AnyJob, settings: Overrides = ()) -> Job:
    """Return the job of a job file. `job.to_yaml()` returns the text of a job file again.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file.
        settings: Settings to override: dotted key -> value.

    Returns:
        The job. Its paths are absolute.

    Raises:
        JobError: The job is wrong. The message has a line for each problem.
    """
    with prepared(job, settings, None) as call:
        return call.job


@restored()
def status(
    job: AnyJob, start: str | date | None = None, end: str | date | None = None, *, inputs: bool = False
) -> Statuses:
    """Return the status of each partition of a job, as `overnight status` shows it.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file.
        start: The first day, as `YYYY-MM-DD` or a date; by default the first partition that ever ran.
        end: The last day; by default the last partition that is due.
        inputs: Also check if the inputs changed; this lists all of them.

    Returns:
        The partitions by date. `entry.status` is published, missing, failed, stale or running.

    Raises:
        JobError: The job or a date is wrong.
        OvernightError: A record on disk cannot be read.
    """
    first, last = as_date(start), as_date(end)
    with prepared(job) as call:
        from overnight.flows.ledger.late_runs import with_late_runs
        from overnight.flows.ledger.partition_status import read_ledger

        entries = with_late_runs(call.job, read_ledger(call.job, first, last, inputs))
        return Statuses(entries, call.job.name, call.job.reports)


@restored()
def verify(job: AnyJob, partition: str | date | None = None, *, rows: int = 300, seed: int = 0) -> "Verification":
    """Compute drawn rows of a published partition again, and compare, as `overnight verify` does.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file.
        partition: The day, as `YYYY-MM-DD` or a date; by default the newest that is published.
        rows: How many source rows to draw.
        seed: The seed of the draw.

    Returns:
        The result: `differences` is empty if all drawn rows are as published, and `most` is how many rows of the
        partition differ at most, at 95 %. `as_json()` returns the document of `overnight verify --json`.

    Raises:
        JobError: The job is wrong.
        OvernightError: The partition is not published, or its rows cannot be computed again.
    """
    with prepared(job) as call:
        from overnight.flows.compare.verification import verify as verify_rows

        return verify_rows(call.job, as_day(partition), rows, seed, str(call.path))


@leaves_no_trace
def search(
    job: AnyJob,
    *,
    text: str | None = None,
    image: str | None = None,
    n: int = 5,
    model: str | None = None,
    partition: str | date | None = None,
    sheet: str | None = None,
    exact: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Return the published rows that are most similar to a text or an image, as `overnight search` finds them.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file. The job needs an
            embedding model and published partitions.
        text: The text to search with.
        image: The path or URI of the image to search with, instead of a text.
        n: The number of rows to find.
        model: The name of the embedding model, if the job has several.
        partition: Search one partition; by default all that are published.
        sheet: A path or URI for a picture of the query and the matches, as PNG.
        exact: Compare with every row instead of using the table's index.
        progress: Print the address of the UI on stderr.

    Returns:
        The document of `overnight search --json`. `matches` has a dictionary for each row, best first, with
        `partition`, `row_id`, `score` and the other plain columns.

    Raises:
        JobError: The job is wrong, or cannot embed the query.
        OvernightError: No published rows can be searched.
    """
    with prepared(job) as call:
        from overnight.api.local_run import search_locally

        query = {"image": image, "text": text, "model": model, "partition": as_day(partition), "sheet": sheet}
        return search_locally(call.path, progress, count=n, exact=exact, **query)


@restored()
def preview(
    job: AnyJob,
    rows: int = 8,
    *,
    partition: str | date | None = None,
    data: Any = None,
    settings: Overrides = (),
) -> "Preview":
    """Run the first rows of a job through its steps and models, and return them, as `overnight preview` shows them.

    Nothing is published.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file.
        rows: The number of source rows.
        partition: The day, as `YYYY-MM-DD` or a date; by default the one that `run` takes.
        data: Rows that replace the job's source: a DataFrame, Arrow data, a Ray Dataset or a list of dicts.
        settings: Settings to override: dotted key -> value, such as `{"inference.0.batch_size": 8}`.

    Returns:
        The preview, which notebooks show as a table.

    Raises:
        JobError: The job, a setting, the partition or the data is wrong.
        OvernightError: The rows cannot be read, or a step or a model fails.
    """
    with (
        tempfile.TemporaryDirectory(prefix="overnight-data-") as folder,
        prepared(job, settings, as_day(partition), data, Location(folder)) as call,
    ):
        from overnight.flows.preview import preview as run_first_rows

        return run_first_rows(call.job, rows, call.partition)
