"""`overnight doctor`: check everything that a run needs, and print advice for each problem."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from overnight.api.console import VisibleConsole
from overnight.cli.command import EXIT_STATUS, exit_on_error, json_option, print_result

if TYPE_CHECKING:
    from overnight.flows.doctor.examine import Finding


@click.command(epilog=f"{EXIT_STATUS} A finding at the level wrong is a failure.")
@click.argument("job_path", metavar="[JOB.yaml]", type=click.Path(path_type=Path), required=False)
@json_option
def doctor(job_path: Path | None, as_json: bool) -> None:
    """Check what a run needs, and print advice.

    Doctor checks the Prefect server, the worker, the queues, Ray, the GPU, versions and the storage of the job.
    """
    from overnight.flows.job.loading import load_job

    os.environ.setdefault("OVERNIGHT_STORAGE_RETRY_SECONDS", "5")  # seconds, because the user waits
    with exit_on_error():
        job = load_job(job_path) if job_path else None
    from overnight.flows.doctor.examine import examine, failed

    findings = examine(job, job_path)
    print_result(findings, as_json, lambda: show_findings(findings))
    sys.stdout.flush()
    os._exit(failed(findings))  # without waiting for the threads of checks that timed out


def show_findings(findings: "Sequence[Finding]") -> None:
    """Print one line per finding on stdout, and its advice below it."""
    from overnight.flows.doctor.examine import counts

    console = VisibleConsole(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "wrong": "red"}
    for finding in findings:
        console.print(f"[{colours[finding.level]}]{finding.level:<8}[/] {escape(f'{finding.what}: {finding.found}')}")
        if finding.advice and finding.level != "ok":
            console.print(f"         -> {finding.advice}", markup=False)
    console.print(", ".join(f"{count} {level}" for level, count in counts(findings).items()))
