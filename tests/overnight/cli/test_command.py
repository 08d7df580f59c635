"""What the commands share: the screen of a run, and the errors before it."""

from pathlib import Path
from types import TracebackType

import click
import pytest
from click.testing import CliRunner

from overnight.api import progress_screen
from overnight.cli import run as run_module
from overnight.cli.backfill import backfill
from overnight.cli.run import run


class Recorded(progress_screen.Screen):
    events: list[str]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.events.append("the screen ends")


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (run, [], "2 problems"),
        (backfill, ["--start", "2026-01-01", "--end", "2026-01-02", "--dry-run"], "2 problems"),
        (backfill, ["--start", "2026-01-02", "--end", "2026-01-01"], "expected an end that is not before the start"),
    ],
)
def test_an_error_before_a_run_is_printed_below_the_screen_and_not_into_it(
    command: click.Command, options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Recorded.events = list[str]()
    monkeypatch.setattr(progress_screen, "Screen", Recorded)
    monkeypatch.setattr(click, "secho", lambda text, **_: events.append(text))
    monkeypatch.setattr(run_module, "start_fork_server", lambda: None)
    job = tmp_path / "job.yaml"
    job.write_text("name: texts\nsource: {kind: unknown}\n")
    done = CliRunner().invoke(command, [str(job), *options])
    assert done.exit_code == 2
    first, second = events
    assert first == "the screen ends"
    assert message in second
