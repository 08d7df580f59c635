"""`overnight validate`: check a job file without a run, or print the schema of job files."""

import json
import os
import sys
from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, json_option, print_result


@click.command(epilog=EXIT_STATUS)
@click.argument("job_path", metavar="[JOB.yaml]", type=click.Path(path_type=Path), required=False)
@click.option("--fast", is_flag=True, help="Leave out what may need the network: the places of source and sink.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of job files, for editors.")
@json_option
def validate(job_path: Path | None, fast: bool, schema: bool, as_json: bool) -> None:
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
        if finding.level == "ok" and finding.what != "schedule":
            continue
        colour = {"wrong": "red", "warning": "yellow"}.get(finding.level)
        advice = f" {finding.advice}" if finding.advice and finding.level != "ok" else ""
        click.secho(f"{finding.what}: {finding.found.rstrip('.')}.{advice}", fg=colour, err=True)
    if not failed(findings) and not as_json:
        click.echo(f"{job_path}: job {job.name!r} is valid")
    sys.exit(2 if failed(findings) else 0)
