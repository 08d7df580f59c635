"""The command line, a file a command. Exit 0: what was asked is published; 1: it failed; 2: bad usage or job file.

The files of the commands import flows and Prefect when a command runs, so that `overnight --help` is quick.
"""

import gc
import os

import click

from overnight.cli.backfill import backfill
from overnight.cli.clean import clean
from overnight.cli.deploy import deploy, serve
from overnight.cli.doctor import doctor
from overnight.cli.init import init
from overnight.cli.run import run
from overnight.cli.search import search
from overnight.cli.status import status
from overnight.cli.validate import validate

# Before Prefect is imported: the terminal shows what a person asked for, the log is in the Prefect UI.
for handler in ("CONSOLE", "CONSOLE_FLOW_RUNS", "CONSOLE_TASK_RUNS"):
    os.environ.setdefault(f"PREFECT_LOGGING_HANDLERS_{handler}_LEVEL", "CRITICAL")

OBJECTS_BETWEEN_COLLECTIONS = 100_000  # Python's own is 700


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="overnight")
def main() -> None:
    """Offline batch inference that people trust to run while they sleep."""
    # Garbage collection costs 1 s of the 4 s that imports and the end of this process take.
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    click.get_current_context().call_on_close(gc.freeze)


for command in (run, backfill, search, status, validate, init, serve, deploy, doctor, clean):
    main.add_command(command)
