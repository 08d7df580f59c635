"""What a command shows from its first second on, with and without a terminal."""

import io
import logging
import re
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.api import progress_screen
from overnight.api.console import VisibleConsole
from overnight.api.progress_screen import Screen, Verbosity, logged
from overnight.tasks.engine.progress import Interval, Progress, StageProgress

HALF = Progress(10.0, {"ingest": StageProgress(10), "write": StageProgress(5)}, 10)


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


def console(output: io.StringIO, is_terminal: bool) -> VisibleConsole:
    return VisibleConsole(file=output, width=60, force_terminal=is_terminal, soft_wrap=True, highlight=False)


def lines_of(output: io.StringIO) -> str:
    """What was printed, as if it had all come in the first second: the machine may be busy."""
    return re.sub(r"(?m)^ *\d+ s  ", "   0 s  ", output.getvalue())


def test_without_a_terminal_each_phase_is_a_line_with_its_second(output: io.StringIO) -> None:
    with Screen(console=console(output, False)) as screen:
        screen.phase("importing")
        screen.phase("importing")
        screen.phase("Starting Ray, about 10 s")
    assert lines_of(output) == "   0 s  importing\n   0 s  Starting Ray, about 10 s\n"


def test_a_terminal_without_a_cursor_gets_lines(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with Screen(console=console(output, True)) as screen:
        screen.phase("importing")
    assert lines_of(output) == "   0 s  importing\n"


def test_without_a_terminal_a_line_with_all_facts_comes_when_it_is_due(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Screen(console=console(output, False)) as screen:
        screen.progress("run", "2026-11-17", HALF)
        screen.tick()
        assert output.getvalue() == ""
        monkeypatch.setattr(progress_screen, "SECONDS_BETWEEN_LINES", 0.0)
        screen.tick()
    assert lines_of(output) == "   0 s  ingest: 10 of 10 rows · write: 5 of 10 rows\n"


def test_a_terminal_shows_the_stages_and_clears_them_in_the_end(output: io.StringIO) -> None:
    with Screen(console=console(output, True)) as screen:
        screen.phase("infer: loading the models and running them")
        screen.progress("run", "2026-11-17", HALF)
        deadline = time.monotonic() + 30
        while "5 of 10" not in output.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
        screen.message("quarantined: a.jpg", "yellow")
    text = output.getvalue()
    assert "2026-11-17: infer: loading the models" in text
    assert "5 of 10" in text
    assert " s  quarantined: a.jpg" in text
    assert text.endswith("\x1b[2K")  # the lines of the screen are erased


def test_long_facts_are_wrapped_so_that_the_screen_can_be_erased_and_long_messages_are_not(output: io.StringIO) -> None:
    with Screen(console=console(output, True)) as screen:
        screen.progress("run", "", replace(HALF, incident="x " * 60))
        screen.message("http://127.0.0.1/" + "y" * 80)
    lines = re.sub(r"\x1b\[[0-9?]*[a-zA-Z]|\r", "", output.getvalue()).splitlines()
    assert max(len(line) for line in lines if "x x" in line) <= 60
    assert any("y" * 80 in line for line in lines)


def test_no_stage_falls_back_within_a_run_and_the_next_partition_begins_again(output: io.StringIO) -> None:
    screen = Screen(console=console(output, False))
    screen.progress("run", "2026-11-17", HALF)
    screen.progress("run", "2026-11-17", replace(HALF, stages={"ingest": StageProgress(2)}))
    assert screen.view.progress
    assert screen.view.progress.stages["ingest"].rows == 10
    screen.progress("next", "2026-11-18", replace(HALF, stages={"ingest": StageProgress(2)}))
    assert screen.view.progress.stages["ingest"].rows == 2
    assert screen.view.partition == "2026-11-18"


def test_the_time_left_runs_down_while_the_server_has_the_same_progress(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress_screen, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    screen = Screen(console=console(output, False))
    progress = replace(HALF, time_left=Interval(30.0, 20.0, 40.0))
    left = []
    for later, seconds in ((0.0, 10.0), (1.0, 10.0), (5.0, 10.0), (6.0, 15.0)):
        clock.seconds = 100.0 + later
        screen.progress("run", "2026-11-17", replace(progress, seconds=seconds))
        current = screen.now().current
        assert current
        assert current.time_left
        left.append(current.time_left.seconds)
    assert left == [30.0, 29.0, 25.0, 30.0]


def test_a_quiet_screen_shows_nothing(output: io.StringIO) -> None:
    for is_terminal in (False, True):
        with Screen(Verbosity(quiet=True), console(output, is_terminal)) as screen, logged(screen):
            screen.phase("importing")
            screen.say("Prefect UI: http://127.0.0.1:4200")
            screen.tick()
            logging.getLogger("prefect.flow_runs").warning("quarantined")
    assert output.getvalue() == ""


def record(name: str, level: int, text: str, **extra: Any) -> None:
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    logger.log(level, text, extra=extra)


def write_records() -> None:
    record("prefect.flow_runs", logging.INFO, "rows: 5")
    record("prefect.flow_runs", logging.INFO, "2026-11-17 started", is_shown=True)
    record("prefect.flow_runs", logging.WARNING, "a worker died\x1b[2J")
    record("prefect.flow_runs", logging.ERROR, "it failed")
    record("prefect.engine", logging.INFO, "Beginning the flow run")


def test_warnings_and_lines_of_a_backfill_are_shown_and_with_verbose_what_prefect_writes(
    output: io.StringIO,
) -> None:
    with Screen(console=console(output, False)) as screen, logged(screen):
        write_records()
    assert lines_of(output) == "   0 s  2026-11-17 started\n   0 s  a worker died\\x1b[2J\n"
    with Screen(Verbosity(verbose=True), console(output, False)) as screen, logged(screen):
        write_records()
    for text in ("rows: 5", "it failed", "Beginning the flow run"):
        assert f"   0 s  {text}\n" in lines_of(output)


def test_threads_may_change_the_view_while_it_is_drawn(output: io.StringIO) -> None:
    with Screen(console=console(output, True)) as screen:

        def change() -> None:
            for count in range(200):
                screen.phase(f"phase {count}")
                screen.progress("run", "", replace(HALF, stages={"ingest": StageProgress(count)}))

        threads = [threading.Thread(target=change) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert screen.view.progress
    assert screen.view.progress.stages["ingest"].rows == 199
