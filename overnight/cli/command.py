"""The parts that the commands share: options, exit status, the fork server, and how a result is printed."""

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from overnight.api.progress_screen import Screen

EXIT_STATUS = "Exit status: 0 success, 1 failure, 2 bad usage or a bad job file."
Command = TypeVar("Command", bound=Callable[..., Any])

job_argument = click.argument("job_path", metavar="JOB.yaml", type=click.Path(path_type=Path))
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout; all other output goes to stderr."
)
json_rows_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print each row as one line of JSON on stdout, with bytes in Base64; all other output goes to stderr.",
)
verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show the run's log, with the output of models and steps, and what Ray and Prefect write.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show only errors, and the JSON document of --json.")
reason_option = click.option(
    "--reason", metavar="T", default="", help="The reason for this run, recorded in the receipt."
)
settings_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a setting of the job file, such as inference.0.batch_size=8; you may repeat this option.",
)


def run_options(command: Command) -> Command:
    """Add the argument JOB.yaml and the options that run and backfill share to a command."""
    for option in (json_option, quiet_option, verbose_option, settings_option, reason_option, job_argument):
        command = option(command)
    return command


@contextlib.contextmanager
def started(quiet: bool, verbose: bool) -> Iterator["Screen"]:
    """Show a screen while the body imports, starts and follows a run. What a library prints at its import comes last.

    Prefect prints a notice once, on the first import on a terminal. An `OvernightError` of the body is printed once the
    screen has ended, because click would write it into the last line of the screen.
    """
    from overnight.api.progress_screen import Screen, Verbosity

    with exit_on_error(), Screen(Verbosity(quiet, verbose)) as screen:
        screen.phase("importing")
        notice = _Notice()
        with contextlib.redirect_stderr(notice):
            importlib.import_module("prefect")
        if text := notice.getvalue().strip():
            click.get_current_context().call_on_close(lambda: click.echo(text, err=True))
        yield screen


class _Notice(io.StringIO):
    """Keeps what a library prints, which is a terminal if stderr is one. Rich writes to stderr itself."""

    def __init__(self) -> None:
        super().__init__()
        self.rich_proxied_file = getattr(sys.stderr, "rich_proxied_file", sys.stderr)

    def isatty(self) -> bool:
        return bool(self.rich_proxied_file.isatty())


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """Run the body. Print its `OvernightError` and exit: with 2 for bad usage or a bad job file, otherwise with 1."""
    from overnight.tasks.errors import JobError, OvernightError

    try:
        yield
    except OvernightError as error:
        click.secho(str(error), fg="red", err=True)
        sys.exit(2 if isinstance(error, JobError) else 1)


@contextlib.contextmanager
def read_errors() -> Iterator[None]:
    """Turn an error of the body, which reads a result, into an `OvernightError`: a file is gone, a database is down."""
    from overnight.tasks.errors import OvernightError, explain

    try:
        yield
    except OvernightError:
        raise
    except FileNotFoundError as error:
        raise OvernightError(
            f"expected the files that the receipt lists, found one gone: {error}. A publish may have replaced them: "
            "try again. Otherwise make them again with overnight run --force."
        ) from error
    except Exception as error:
        raise explain(error, "plan") from error


def start_fork_server() -> None:
    """Start the process that imports the workers' libraries while the command prepares the run, and ends with it."""
    from overnight.flows.runs.local_ray import fork_server_for_local_ray

    click.get_current_context().with_resource(fork_server_for_local_ray())


def print_result(document: Any, as_json: bool, print_text: Callable[[], None]) -> None:
    """Print a result as one JSON document, or call `print_text`. Objects in it may have `as_json`, or become text."""
    if as_json:
        click.echo(json.dumps(document, indent=2, default=_json_value))
    else:
        print_text()


def _json_value(value: Any) -> Any:
    return value.as_json() if hasattr(value, "as_json") else str(value)
