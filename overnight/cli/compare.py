"""`overnight compare`: compute the same rows two ways, or read published ones, and show what differs."""

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from overnight.cli.command import (
    EXIT_STATUS,
    exit_on_error,
    job_argument,
    json_option,
    print_result,
    read_errors,
    settings_option,
)

if TYPE_CHECKING:
    from overnight.flows.compare.comparison import Comparison
    from overnight.flows.compare.sides import Drawing

DIFFERENCES = "A comparison that finds differences is a success."


class Rows(click.ParamType):
    """A number of rows, or `auto`, which is None."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == "auto":
            return None
        return click.IntRange(min=1).convert(value, param, ctx)


@click.command(epilog=f"{EXIT_STATUS} {DIFFERENCES}")
@job_argument
@click.argument("other", metavar="[OTHER.yaml]", required=False, type=click.Path(path_type=Path))
@settings_option
@click.option("--partition", metavar="D", help="The day of A; default: as in run, or the newest that is published.")
@click.option("--with", "with_", metavar="RESULT", help="Compare with this published day, or another name as in diff.")
@click.option(
    "--rows",
    metavar="N|auto",
    type=Rows(),
    default="auto",
    help="The number of rows, drawn at random; auto (default): as many as show --difference.",
)
@click.option(
    "--difference",
    metavar="X",
    type=click.FloatRange(0.0001, 0.5),
    default=0.02,
    show_default=True,
    help="The difference of shares to see, with 95 % confidence and 80 % power.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of the draw.")
@click.option("--column", metavar="C", help="The column whose agreement counts; default: the predicted label.")
@click.option("--html", metavar="FILE", help="Also write a page of HTML with the rows that differ, to a path or a URI.")
@json_option
def compare(
    job_path: Path,
    other: Path | None,
    settings: tuple[str, ...],
    partition: str | None,
    with_: str | None,
    rows: int | None,
    difference: float,
    seed: int,
    column: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Compare two ways to run a job, or two published days.

    --set names other settings, OTHER.yaml another job, --with another published day. Days, and jobs that have published
    the day, are compared by their published rows. Otherwise both ways compute the same drawn rows in this process.
    Nothing is published.
    """
    if [bool(settings), bool(other), bool(with_)].count(True) != 1:
        raise click.UsageError("expected exactly one of --set, OTHER.yaml and --with: what is A compared with?")
    from overnight.flows.compare.sides import Drawing
    from overnight.flows.compare.words import document

    drawing = Drawing(rows, difference, seed)
    with exit_on_error(), read_errors(), contextlib.redirect_stdout(sys.stderr):
        if with_:
            comparison = _two_results(job_path, partition, with_, drawing, column)
        elif other:
            comparison = _two_jobs(job_path, other, partition, drawing, column)
        else:
            comparison = _two_settings(job_path, settings, partition, drawing, column)
        if html:
            from overnight.flows.compare.page import render
            from overnight.tasks.storage.location import Location

            Location(html).write_bytes(render(comparison).encode(errors="replace"))
    print_result(document(comparison) if as_json else None, as_json, lambda: _show(comparison, html))


def _show(comparison: "Comparison", html: str | None) -> None:
    from overnight.cli.compare_view import show_comparison

    show_comparison(comparison)
    if html:
        click.echo(f"  page: {html}")


def _two_results(
    job_path: Path, partition: str | None, other: str, drawing: "Drawing", column: str | None
) -> "Comparison":
    from overnight.flows.compare.comparison import compare_published
    from overnight.flows.job.loading import load_job
    from overnight.flows.ledger.results import Results

    job = load_job(job_path)
    results = Results(job, str(job_path), job.published)
    a = results.result(results.partition(partition))
    return compare_published(a, results.named(other, partition), drawing, column)


def _two_jobs(
    job_path: Path, other: Path, partition: str | None, drawing: "Drawing", column: str | None
) -> "Comparison":
    """Compare the published rows of both jobs, if both have them, and otherwise compute rows."""
    from overnight.flows.compare.comparison import compare_jobs, compare_published
    from overnight.flows.job.loading import load_job
    from overnight.flows.ledger.results import NoResult, Results
    from overnight.flows.schedule.partitions import resolve_partition
    from overnight.tasks.storage.stores import joined, use

    job, other_job = load_job(job_path), load_job(other)
    use(joined(job.storage, other_job.storage))
    with contextlib.suppress(NoResult):
        a = Results(job, str(job_path), job.published)
        b = Results(other_job, str(other), other_job.published)
        day = a.partition(partition)
        return compare_published(a.result(day), b.result(day), drawing, column)
    day = resolve_partition(job, partition, None, datetime.now(UTC))
    if other_job.source != job.source:
        click.echo(f"{other.name} has another source: both jobs compute rows of {job_path.name}", err=True)
        other_job = other_job.model_copy(update={"source": job.source})
    return compare_jobs([(job_path.name, job), (other.name, other_job)], day, drawing, column)


def _two_settings(
    job_path: Path, settings: tuple[str, ...], partition: str | None, drawing: "Drawing", column: str | None
) -> "Comparison":
    from overnight.flows.compare.comparison import compare_jobs
    from overnight.flows.job.loading import load_job
    from overnight.flows.schedule.partitions import resolve_partition
    from overnight.tasks.errors import JobError

    job, changed = load_job(job_path), load_job(job_path, settings)
    if changed.source != job.source:
        raise JobError(
            "--set: expected settings of preprocess, inference or sink, found one of source. "
            "Both ways must read the same rows: to compare two places, use two days or two jobs."
        )
    day = resolve_partition(job, partition, None, datetime.now(UTC))
    return compare_jobs([(job_path.name, job), (", ".join(settings), changed)], day, drawing, column)
