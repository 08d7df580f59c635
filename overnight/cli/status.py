"""`overnight status`: show every partition of a job; `status_view.py` draws them."""

from datetime import datetime
from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_option, print_result


@click.command(epilog=f"{EXIT_STATUS} Failed partitions do not change it.")
@job_argument
@click.option(
    "--start",
    metavar="D",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The first day, as YYYY-MM-DD; default: the first partition that ever ran.",
)
@click.option(
    "--end",
    metavar="D",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The last day, as YYYY-MM-DD; default: the last partition that is due.",
)
@click.option("--where", metavar="C=V", multiple=True, help="Only these partitions, such as region=eu; repeatable.")
@click.option("--inputs", is_flag=True, help="Also check if the inputs changed; this lists all of them.")
@click.option(
    "--plan",
    is_flag=True,
    help="Also show which rows of stale partitions would run, which would stay (--inputs), and what is remembered.",
)
@json_option
def status(
    job_path: Path,
    start: datetime | None,
    end: datetime | None,
    where: tuple[str, ...],
    inputs: bool,
    plan: bool,
    as_json: bool,
) -> None:
    """Show the status of every partition of a job.

    A partition is published, missing, failed, stale or running. If the Prefect server answers, a missing partition
    whose run should have begun by now has this as its reason.
    """
    from overnight.cli.status_view import input_progress, show_status
    from overnight.flows.job.loading import load_job
    from overnight.flows.ledger.late_runs import with_late_runs
    from overnight.flows.ledger.partition_status import chain_status, read_ledger
    from overnight.flows.ledger.remembered import remembered_rows

    with exit_on_error(), input_progress() as tell:
        job = load_job(job_path)
        ledger = read_ledger(job, start and start.date(), end and end.date(), inputs or plan, tell, where=where)
        entries = with_late_runs(job, ledger)
        if plan:
            from overnight.flows.runs.continuation import with_plans

            entries = with_plans(job, entries)
        needs = chain_status(job, entries)
        memory = remembered_rows(job) if plan and not as_json else []
    print_result(entries, as_json, lambda: show_status(job.name, entries, job.reports, needs))
    for line in memory:
        click.echo(str(line))
