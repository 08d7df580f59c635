"""The command line, one file per command. Exit status: 0 success, 1 failure, 2 bad usage or a bad job file.

The files of the commands import flows and Prefect when a command runs, so that `overnight --help` is quick.
"""

import contextlib
import gc
import io
import os
import sys
from pathlib import Path

import click

from overnight.cli.backfill import backfill
from overnight.cli.chaos import chaos
from overnight.cli.clean import clean
from overnight.cli.command import EXIT_STATUS
from overnight.cli.compare import compare
from overnight.cli.deploy import deploy, serve
from overnight.cli.diff import diff
from overnight.cli.docs import docs
from overnight.cli.doctor import doctor
from overnight.cli.history import history
from overnight.cli.init import init
from overnight.cli.metrics import metrics
from overnight.cli.notify import notify
from overnight.cli.plan import plan
from overnight.cli.preview import preview
from overnight.cli.remove import remove
from overnight.cli.run import run
from overnight.cli.search import search
from overnight.cli.show import show
from overnight.cli.site import site
from overnight.cli.status import status
from overnight.cli.undo import undo
from overnight.cli.validate import validate
from overnight.cli.verify import verify
from overnight.tasks.config.proxies import this_machine_past_proxies

# Before Prefect is imported: the terminal shows the command's output, and the Prefect UI has the log.
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")

COMPLETION = """\b
Tab completion of commands, options and files, in bash, zsh and fish:
  eval "$(_OVERNIGHT_COMPLETE=bash_source overnight)"
  eval "$(_OVERNIGHT_COMPLETE=zsh_source overnight)"
  _OVERNIGHT_COMPLETE=fish_source overnight | source"""
OBJECTS_BETWEEN_COLLECTIONS = 100_000  # Python's default is 700


FIRST = (init, run, status, backfill, deploy)  # in the order in which a new user needs them
RESULTS = (preview, plan, show, diff, compare, verify, undo, history, site, search)
WITH_SCREEN = ("run", "backfill")  # they show a line before they import Prefect
OTHERS = (docs, validate, doctor, chaos, serve, notify, metrics, clean, remove)
SECTIONS = {"First commands, in this order": FIRST, "Rows and results": RESULTS, "Other commands": OTHERS}


class Commands(click.Group):
    """A group whose help lists the commands that a new user needs first, in their order."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of commands, each with its short help."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                limit = formatter.width - 6 - max(len(str(command.name)) for command in commands)
                formatter.write_dl([(str(command.name), command.get_short_help_str(limit)) for command in commands])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{EXIT_STATUS} `overnight COMMAND --help` lists the options of a command.\n\n{COMPLETION}",
)
@click.version_option(package_name="overnight")
def main() -> None:
    """Run offline batch inference that people trust while they sleep."""
    # Garbage collection costs 1 s of the 4 s that imports and the end of this process take.
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    context = click.get_current_context()
    context.call_on_close(skip_last_collection)
    context.with_resource(this_machine_past_proxies())
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    is_first = sys.stdout.isatty() and not home.exists()
    if is_first and context.invoked_subcommand not in WITH_SCREEN:
        import_prefect_for_the_first_time()


def import_prefect_for_the_first_time() -> None:
    """Import Prefect, and print its notice of telemetry, which it prints once, after the command's own output."""
    with contextlib.redirect_stderr(io.StringIO()) as notice:
        import prefect  # noqa: F401
    click.get_current_context().call_on_close(lambda: click.echo(notice.getvalue(), err=True, nl=False))


def skip_last_collection() -> None:
    """End this process without a last garbage collection, unless DuckDB would report its objects as leaks."""
    if "duckdb" not in sys.modules:
        gc.freeze()


for command in FIRST + RESULTS + OTHERS:
    main.add_command(command)
