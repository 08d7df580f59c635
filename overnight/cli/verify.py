"""`overnight verify`: compute drawn published rows again, and print how many differ at most."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from overnight.cli.command import EXIT_STATUS, job_argument, json_option, print_result, read_errors

if TYPE_CHECKING:
    from overnight.flows.compare.verification import Verification

VERIFIED = "For verify, 0 is verified, 1 is that rows differ, and 2 also means that rows cannot be verified."
SHOWN = 5


@click.command(epilog=f"{EXIT_STATUS} {VERIFIED}")
@job_argument
@click.option("--partition", metavar="D", help="The day, as YYYY-MM-DD; default: the newest that is published.")
@click.option(
    "--rows", metavar="N", type=click.IntRange(min=1), default=300, show_default=True, help="How many rows to draw."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of the draw.")
@json_option
def verify(job_path: Path, partition: str | None, rows: int, seed: int, as_json: bool) -> None:
    """Compute drawn rows of a published partition again, and compare.

    They are computed in this process, as the receipt records it: its settings, and its inputs in the same versions.
    Nothing is published.
    """
    from overnight.flows.job.loading import load_job
    from overnight.tasks.errors import OvernightError

    try:
        with read_errors(), contextlib.redirect_stdout(sys.stderr):
            from overnight.flows.compare.verification import verify as verify_rows

            verification = verify_rows(load_job(job_path), partition, rows, seed, str(job_path))
    except OvernightError as error:
        click.secho(str(error), fg="red", err=True)
        sys.exit(2)
    print_result(verification, as_json, lambda: _show(verification))
    sys.exit(1 if verification.differences else 0)


def _show(verification: "Verification") -> None:
    """Print the result in a few lines."""
    count, share = len(verification.differences), verification.most / max(verification.total, 1)
    verb = "differ" if count else "are as published"
    click.echo(
        f"{verification.job}/{verification.partition}: {count or verification.checked:,} of {verification.checked:,} "
        f"drawn rows {verb}; at 95 %, at most {share:.2%} of the {verification.total:,} rows differ"
    )
    for difference in verification.differences[:SHOWN]:
        click.echo(f"  {difference.row_id} {difference.what}")
    if count > SHOWN:
        click.echo(f"  and {count - SHOWN:,} more")
    for reason in verification.reasons:
        click.echo(f"  {reason}")
