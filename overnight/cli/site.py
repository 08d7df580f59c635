"""`overnight site`: write the pages of all jobs below a folder or bucket, or serve them."""

import contextlib
import threading

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error

PORT = 4280  # of flows/history/server.py, which imports Prefect


@click.command(epilog=EXIT_STATUS)
@click.argument("folder", metavar="FOLDER")
@click.option("--output", metavar="FOLDER", help="Where to write; default: FOLDER/_overnight_site.")
@click.option(
    "--serve",
    "port",
    metavar="[PORT]",
    is_flag=False,
    flag_value=PORT,
    type=click.IntRange(0, 65535),
    help=f"Write nothing, and serve the pages at this port until you interrupt it; default: {PORT}.",
)
@click.option("--host", metavar="H", default="127.0.0.1", help="The address for --serve; default: 127.0.0.1.")
def site(folder: str, output: str | None, port: int | None, host: str) -> None:
    """Write static pages about all jobs below FOLDER.

    FOLDER is local, or such as s3://bucket/lake. The pages are an index, and the calendar and the history of each job.
    They link to the reports of the runs, come from receipts alone and need no server. Reports show rows: share the
    pages as you would share the rows.
    """
    from overnight.flows.history.site import find_states, write_site
    from overnight.tasks.storage.location import Location

    location = Location(folder)
    with exit_on_error():
        if port is not None:
            from overnight.flows.history.server import site_served

            with site_served(lambda: find_states(location), host, port, location) as line:
                click.echo(line, err=True)
                with contextlib.suppress(KeyboardInterrupt):
                    threading.Event().wait()
            return
        target, histories = write_site(location, Location(output) if output else None)
    lines = sum(len(history.lines) for history in histories)
    click.echo(f"{target / 'index.html'}: {len(histories):,} jobs, {lines:,} partitions")
    for history in histories:
        if history.problem:
            click.secho(f"{history.state}: {history.problem}", fg="yellow", err=True)
