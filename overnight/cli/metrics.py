"""`overnight metrics`: serve metrics of jobs and partitions for Prometheus."""

import contextlib
import os
from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error


@click.command(epilog=EXIT_STATUS)
@click.argument("job_paths", metavar="[JOB.yaml]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--host", metavar="H", default="127.0.0.1", help="The address to listen on; default: 127.0.0.1.")
@click.option("--port", metavar="P", type=click.IntRange(0, 65535), default=4210, help="The port; default: 4210.")
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    default=14,
    help="The number of partitions of each job, the newest; default: 14.",
)
def metrics(job_paths: tuple[Path, ...], host: str, port: int, partitions: int) -> None:
    """Serve metrics of jobs and partitions for Prometheus.

    Without jobs, metrics reads the jobs that are deployed on the Prefect server. Call it in the folder of the worker.
    """
    from overnight.flows.metrics import start_server

    os.environ.setdefault("OVERNIGHT_STORAGE_RETRY_SECONDS", "5")  # a scrape ends after a minute at the latest
    with exit_on_error():
        server, thread = start_server(job_paths, host, port, partitions)
    click.echo(f"Metrics: http://{host}:{server.server_port}/metrics", err=True)
    with contextlib.suppress(KeyboardInterrupt):
        thread.join()
