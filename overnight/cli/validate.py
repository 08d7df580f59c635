"""`overnight validate`: check a job file without a run, or print the schema of job files."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, json_option, print_result

if TYPE_CHECKING:
    from overnight.flows.job.model import Job

ROWS_OF_AN_ESTIMATE = 8


@click.command(epilog=EXIT_STATUS)
@click.argument("job_path", metavar="[JOB.yaml]", type=click.Path(path_type=Path), required=False)
@click.option("--fast", is_flag=True, help="Leave out what may need the network: the places of source and sink.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of job files, for editors.")
@click.option(
    "--estimate",
    is_flag=True,
    help="Also run the first 8 rows, as a preview does, and print what a run will cost and how long it will take. "
    "Endpoints are paid for these rows.",
)
@json_option
def validate(job_path: Path | None, fast: bool, schema: bool, estimate: bool, as_json: bool) -> None:
    """Check a job file and what it names, without running it.

    This checks settings, environment variables, your code, weights, the schedule, and the places of source and sink.
    Your modules are imported.
    """
    from overnight.flows.job.loading import job_schema, load_job

    if schema:
        click.echo(json.dumps(job_schema(), indent=2))
        return
    if job_path is None:
        raise click.UsageError("expected JOB.yaml or --schema, found neither")
    os.environ.setdefault("OVERNIGHT_STORAGE_RETRY_SECONDS", "5")  # seconds, because the user waits
    with exit_on_error():
        job = load_job(job_path)
    from overnight.flows.doctor.examine import examine_job_file, failed

    findings = examine_job_file(job, job_path, network=not fast)
    print_result(findings, as_json, lambda: None)
    for finding in findings:
        if finding.level == "ok" and finding.what not in ("schedule", "budget"):
            continue
        colour = {"wrong": "red", "warning": "yellow"}.get(finding.level)
        advice = f" {finding.advice}" if finding.advice and finding.level != "ok" else ""
        click.secho(f"{finding.what}: {finding.found.rstrip('.')}.{advice}", fg=colour, err=True)
    if not failed(findings):
        if not as_json:
            click.echo(f"{job_path}: job {job.name!r} is valid")
        if estimate:
            _estimate(job, as_json)
    sys.exit(2 if failed(findings) else 0)


def _estimate(job: "Job", as_json: bool) -> None:
    """Run the first rows of the partition that is due, and print the estimate; beside JSON, on stderr."""
    from overnight.flows.estimate import estimate, overrun
    from overnight.flows.preview import preview
    from overnight.tasks.errors import JobError, OvernightError

    try:
        with contextlib.redirect_stdout(sys.stderr):  # for what models and steps print
            result = preview(job, ROWS_OF_AN_ESTIMATE)
        if not len(result):
            raise JobError(
                f"none of the first {ROWS_OF_AN_ESTIMATE} rows came through, so nothing shows what the others need. "
                "Look at them: overnight preview JOB.yaml"
            )
        lines = list(estimate(job, result).lines())
    except OvernightError as error:
        click.secho(f"estimate: {error.stage}: {error}", fg="red", err=True)
        sys.exit(1)
    if sentence := overrun(job, result):
        lines.append(f"  budget: {sentence}")
    click.echo("\n".join(lines), err=as_json)
