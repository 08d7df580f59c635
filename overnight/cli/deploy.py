"""`overnight deploy` and `overnight serve`: run jobs on their schedules, by a Prefect server or by this process."""

from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, json_option, print_result


@click.command(epilog=EXIT_STATUS)
@click.argument("job_paths", metavar="[JOB.yaml]...", nargs=-1, type=click.Path(path_type=Path))
@json_option
def deploy(job_paths: tuple[Path, ...], as_json: bool) -> None:
    """Deploy jobs to the Prefect server and list the changes.

    Without jobs, deploy reads deployments/prefect.yaml. A worker runs the jobs in the folder where you call this.
    Automations restart runs whose process died.
    """
    from overnight.flows.deploy.apply import deploy as deploy_all
    from overnight.flows.deploy.prefect_yaml import PrefectFile
    from overnight.flows.runs.local_server import prefect_server, ui_address

    with exit_on_error():
        PrefectFile(job_paths=job_paths)  # refuses bad jobs before a server starts
    with exit_on_error(), prefect_server() as url:
        click.echo(f"Prefect UI: {ui_address(url)}/deployments", err=True)
        changes = deploy_all(job_paths=job_paths)
    print_result([change.as_json() for change in changes], as_json, lambda: click.echo("\n".join(map(str, changes))))


@click.command(epilog=EXIT_STATUS)
@click.argument("job_paths", metavar="JOB.yaml...", nargs=-1, required=True, type=click.Path(path_type=Path))
def serve(job_paths: tuple[Path, ...]) -> None:
    """Run jobs on their schedules in this process.

    It serves until you interrupt it. The Prefect UI has a form that starts a run of each job.
    """
    from overnight.flows.deploy.apply import serve as serve_jobs
    from overnight.flows.deploy.prefect_yaml import deployable
    from overnight.flows.runs.local_server import prefect_server, ui_address

    with exit_on_error():
        for path in job_paths:
            deployable(path)  # refuses bad jobs before a server starts
    with exit_on_error(), prefect_server() as url:
        click.echo(f"Prefect UI: {ui_address(url)}/deployments", err=True)
        serve_jobs(job_paths)
