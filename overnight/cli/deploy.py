"""`overnight deploy` and `overnight serve`: run jobs on their schedules, by a Prefect server or by this process."""

import sys
from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, json_option, print_result

absolute_option = click.option(
    "--absolute-paths",
    is_flag=True,
    help="Write relative paths in the job files in full first; a terminal offers it.",
)


@click.command(epilog=EXIT_STATUS)
@click.argument("job_paths", metavar="[JOB.yaml]...", nargs=-1, type=click.Path(path_type=Path))
@absolute_option
@json_option
def deploy(job_paths: tuple[Path, ...], absolute_paths: bool, as_json: bool) -> None:
    """Deploy jobs to the Prefect server and list the changes.

    Without jobs, deploy reads deployments/prefect.yaml. A worker runs the jobs in the folder where you call this.
    Automations restart runs whose process died. On stderr, deploy shows if the next run of each job would start.
    """
    from overnight.flows.deploy.apply import deploy as deploy_all
    from overnight.flows.deploy.prefect_yaml import PrefectFile
    from overnight.flows.doctor.next_runs import next_runs
    from overnight.flows.runs.local_server import prefect_server, ui_line

    with exit_on_error():
        _write_absolute_paths(job_paths, absolute_paths)
        PrefectFile(job_paths=job_paths)  # refuses bad jobs before a server starts
    with exit_on_error(), prefect_server() as url:
        click.echo(ui_line(url, "/deployments"), err=True)
        changes = deploy_all(job_paths=job_paths)
        findings = next_runs()
    print_result(changes, as_json, lambda: click.echo("\n".join(map(str, changes))))
    for finding in findings:
        line = f"{finding.found} -> {finding.advice}" if finding.advice else finding.found
        click.secho(line, fg="red" if finding.is_wrong else None, err=True)


@click.command(epilog=EXIT_STATUS)
@click.argument("job_paths", metavar="JOB.yaml...", nargs=-1, required=True, type=click.Path(path_type=Path))
@absolute_option
def serve(job_paths: tuple[Path, ...], absolute_paths: bool) -> None:
    """Run jobs on their schedules in this process.

    It serves until you interrupt it. The Prefect UI has a form that starts a run of each job. The site at the second
    address has the history of the jobs and the reports of their runs, which show rows, for this machine alone.
    """
    from overnight.flows.deploy.apply import serve as serve_jobs
    from overnight.flows.deploy.prefect_yaml import deployable_jobs
    from overnight.flows.history.server import site_served
    from overnight.flows.runs.local_ray import check_ray_address
    from overnight.flows.runs.local_server import prefect_server, ui_line

    with exit_on_error():
        check_ray_address()
        _write_absolute_paths(job_paths, absolute_paths)
        jobs = deployable_jobs(job_paths)  # refuses bad jobs before a server starts
    states = [job.state_location for job in jobs.values()]
    with exit_on_error(), prefect_server() as url, site_served(lambda: states) as site_line:
        click.echo(ui_line(url, "/deployments"), err=True)
        click.echo(site_line, err=True)
        serve_jobs(job_paths)


def _write_absolute_paths(job_paths: tuple[Path, ...], without_asking: bool) -> None:
    from overnight.flows.job.loading import read_job, relative_paths, write_absolute_paths

    for path in job_paths:
        relative = relative_paths(read_job(path))
        if not relative:
            continue
        question = f"{path} has relative paths ({', '.join(relative)}), which depend on the folder. Write them in full?"
        if without_asking or (sys.stdin.isatty() and click.confirm(question, default=True, err=True)):
            click.echo(f"{path}: {', '.join(write_absolute_paths(path))}", err=True)
