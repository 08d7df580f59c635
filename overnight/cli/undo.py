"""`overnight undo`: publish the earlier rows of a partition again."""

from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_option, print_result, reason_option


@click.command(epilog=EXIT_STATUS)
@job_argument
@click.option("--partition", metavar="D", help="The day, as YYYY-MM-DD; not needed for a job without days.")
@click.option("--to", metavar="N|GENERATION", default="", help="Which publication; default: the one before.")
@reason_option
@json_option
def undo(job_path: Path, partition: str | None, to: str, reason: str, as_json: bool) -> None:
    """Publish the earlier rows of a partition again, in one step.

    Publication 1 is the oldest. Sinks of files keep sink.keep_publications replaced ones. It starts
    neither Ray nor Prefect. Receivers of notify and jobs that follow learn of it. A later run of the
    unchanged job does not publish the undone rows again.
    """
    from overnight.flows.job.loading import load_job
    from overnight.tasks.errors import JobError

    with exit_on_error():
        job = load_job(job_path)
        if job.is_dated and not partition:
            raise JobError(f"{job.name}: expected --partition D, the day to undo, found none.")
        from overnight.flows.ledger.undo import undo as undo_partition

        receipt = undo_partition(job, partition, to, reason, str(job_path))
    print_result(receipt, as_json, lambda: _show(receipt))


def _show(receipt: dict[str, object]) -> None:
    from overnight.flows.ledger.staleness import undo_text

    undo = receipt["undo"]
    assert isinstance(undo, dict)
    click.echo(
        f"{receipt['job']}/{receipt['partition']}: {receipt['rows_out']:,} rows of {undo['generation']} are "
        f"published again\n  {undo_text(receipt)}"
    )
