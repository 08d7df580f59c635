"""`overnight doctor`: what a run needs, examined, with advice for what is wrong."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from overnight.cli.command import exit_on_error, json_option, print_result
from overnight.cli.console import VisibleConsole

if TYPE_CHECKING:
    from overnight.flows.doctor.examine import Finding


@click.command()
@click.argument("job_path", metavar="[JOB.yaml]", type=click.Path(path_type=Path), required=False)
@json_option
def doctor(job_path: Path | None, as_json: bool) -> None:
    """Look at all that a run needs, and say what to do: server, worker, queues, Ray, GPU, versions, storage."""
    from overnight.flows.job.loading import load_job

    os.environ.setdefault("OVERNIGHT_STORAGE_RETRY_SECONDS", "5")  # seconds: a person waits
    with exit_on_error():
        job = load_job(job_path) if job_path else None
    from overnight.flows.doctor.examine import examine, failed

    findings = examine(job, job_path)
    print_result([finding.as_json() for finding in findings], as_json, lambda: show_findings(findings))
    sys.stdout.flush()
    os._exit(1 if failed(findings) else 0)  # a look that still waits for an answer keeps nobody waiting


def show_findings(findings: "Sequence[Finding]") -> None:
    """Print one line per finding on stdout, and below it what to do."""
    from overnight.flows.doctor.examine import counts

    console = VisibleConsole(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "wrong": "red"}
    for finding in findings:
        console.print(f"[{colours[finding.level]}]{finding.level:<8}[/] {escape(f'{finding.what}: {finding.found}')}")
        if finding.advice and finding.level != "ok":
            console.print(f"         -> {finding.advice}", markup=False)
    console.print(", ".join(f"{count} {level}" for level, count in counts(findings).items()))
