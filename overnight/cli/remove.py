"""`overnight remove`: take a job off the Prefect server, and list what stays."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from overnight.api.console import VisibleConsole
from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_option, print_result


@click.command(epilog=EXIT_STATUS)
@job_argument
@click.option("--yes", is_flag=True, help="Remove the objects. Without --yes, the command only lists them.")
@json_option
def remove(job_path: Path, yes: bool, as_json: bool) -> None:
    """Remove a job from the Prefect server, or list what would go.

    The server has deployments, schedules and automations of a job. Published rows, receipts and other files stay. The
    command lists them, with the command that deletes each.
    """
    from overnight.flows.deploy.removal import remove_job
    from overnight.flows.job.loading import load_job
    from overnight.flows.runs.local_server import prefect_server, ui_line

    with exit_on_error():
        job = load_job(job_path)
    with exit_on_error(), prefect_server() as url:
        click.echo(ui_line(url, "/deployments"), err=True)
        report = remove_job(job, job_path, dry_run=not yes)
    print_result(report, as_json, lambda: show_removal(report))


def show_removal(report: dict[str, Any]) -> None:
    """Print what `overnight remove` removed, or would remove, and what stays."""
    console = VisibleConsole(highlight=False, markup=False, soft_wrap=True)
    items = report["removable" if report["dry_run"] else "removed"]
    verb = "would be removed; add --yes to remove them" if report["dry_run"] else "removed"
    console.print(f"{report['job']}: {len(items)} objects of the server {verb}")
    _show_items(console, items)
    console.print("stays:")
    _show_items(console, report["stays"])


def _show_items(console: Console, items: list[dict[str, str]]) -> None:
    for item in items:
        remark = f": {item['remark']}" if item["remark"] else ""
        console.print(f"  {item['kind']} {item['name']}{remark}")
