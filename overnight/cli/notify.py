"""`overnight notify`: send a test message to each receiver of a job."""

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument


@click.command(epilog=EXIT_STATUS)
@job_argument
def notify(job_path: Path) -> None:
    """Send a test message to each receiver of a job.

    These are the receivers of the key notify, and the block of schedule.notify.
    """
    from overnight.flows.job.loading import load_job
    from overnight.tasks.errors import JobError, OvernightError

    with exit_on_error():
        job = load_job(job_path)
        if not job.receivers:
            raise JobError(f"{job_path}: expected receivers in notify, found none. Add one, such as a webhook.")
        from overnight.flows.notices.message import Message
        from overnight.flows.notices.sending import send
        from overnight.flows.runs.local_server import prefect_server

        sentence = "This is a test of the receivers of the job. Nothing ran."
        has_blocks = any(receiver.block for receiver in job.receivers)
        has_failed = False
        with prefect_server() if has_blocks else nullcontext():
            for receiver in job.receivers:
                message = Message(job.name, "test", "test", tuple(receiver.on), sentence)
                try:
                    send(receiver, message)
                    click.echo(f"{receiver.name} took the message")
                except OvernightError as error:
                    has_failed = True
                    click.secho(str(error), fg="red", err=True)
    sys.exit(1 if has_failed else 0)
