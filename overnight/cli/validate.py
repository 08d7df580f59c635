"""`overnight validate`: check a job file without a run, or print the schema of job files."""

import json
from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error


@click.command(epilog=EXIT_STATUS)
@click.argument("job_path", metavar="[JOB.yaml]", type=click.Path(path_type=Path), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON schema of job files, for editors.")
def validate(job_path: Path | None, schema: bool) -> None:
    """Check a job file without running it."""
    from overnight.flows.job.loading import job_schema, load_job

    if schema:
        click.echo(json.dumps(job_schema(), indent=2))
        return
    if job_path is None:
        raise click.UsageError("expected JOB.yaml or --schema, found neither")
    with exit_on_error():
        job = load_job(job_path)
    click.echo(f"{job_path}: job {job.name!r} is valid")
