"""`overnight chaos`: run a sample under kills and pauses, and print what was lost, doubled, torn and recomputed."""

import random
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from overnight.cli.command import (
    EXIT_STATUS,
    exit_on_error,
    job_argument,
    json_option,
    print_result,
    settings_option,
)

if TYPE_CHECKING:
    from overnight.flows.chaos.rehearsal import Report


@click.command(epilog=f"{EXIT_STATUS} Rows that were lost, doubled or torn are a failure.")
@job_argument
@click.option("--kills", type=click.IntRange(min=1), default=4, show_default=True, help="How often to kill or freeze.")
@click.option("--rows", metavar="N", type=click.IntRange(min=1), default=1000, show_default=True, help="The sample.")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Repeat what a seed drew; default: a new one.")
@click.option("--partition", metavar="D", help="The day of the sample, as for overnight run.")
@settings_option
@json_option
def chaos(
    job_path: Path,
    kills: int,
    rows: int,
    seed: int | None,
    partition: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a sample while its processes are killed and frozen.

    The command compares its rows with those of an undisturbed run. The sample is the first N rows.
    It runs in a temporary folder, and published rows do not change.
    """
    with exit_on_error():
        from overnight.flows.job.loading import load_job
        from overnight.flows.schedule.partitions import resolve_partition

        day = resolve_partition(load_job(job_path, settings), partition, None, datetime.now(UTC))
        from overnight.flows.chaos.rehearsal import Rehearsal, draw_strikes
        from overnight.flows.runs.local_server import prefect_server

        number = random.SystemRandom().randrange(10**6) if seed is None else seed
        folder = Path(tempfile.mkdtemp(prefix="overnight-chaos-"))
        with prefect_server(not as_json):
            rehearsal = Rehearsal(job_path, day, rows, settings, folder)
            report = rehearsal.play(draw_strikes(kills, number), number)
        if report.is_exact:
            shutil.rmtree(folder)
    print_result(report, as_json, lambda: show_report(report, str(job_path)))
    sys.exit(0 if report.is_exact else 1)


def show_report(report: "Report", file: str) -> None:
    """Print the kills and the counts of rows as two tables on stdout."""
    from rich.table import Column, Table

    from overnight.api.console import VisibleConsole

    console = VisibleConsole(highlight=False)
    strikes = Table("kill", Column("staged", justify="right"), Column("seconds", justify="right"))
    for strike in report.strikes:
        strikes.add_row(strike["what"], f"{strike['share']:.0%}", f"{strike['seconds']:.1f}")
    console.print(strikes)
    counts = ("rows", "lost", "doubled", "torn", "recomputed")
    table = Table(*(Column(name, justify="right") for name in counts))
    table.add_row(*(f"{getattr(report, name):,}" for name in counts))
    console.print(table)
    kills = len(report.strikes) + report.missed
    again = f"overnight chaos {file} --kills {kills} --rows {report.rows} --seed {report.seed}"
    console.print(
        f"{report.job}/{report.partition}: {report.runs} runs; the same again: {again}", markup=False, soft_wrap=True
    )
    if report.missed:
        words = f"{report.missed} of {kills} kills found no moment: a run ended first."
        console.print(f"{words} Give more --rows.", markup=False)
    if report.kept:
        console.print(f"both results are kept in {report.kept}", markup=False, soft_wrap=True)
