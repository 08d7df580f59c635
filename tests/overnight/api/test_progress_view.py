"""What the screen of a run shows, drawn on a console that records."""

import io
from dataclasses import replace

import pytest

from overnight.api.console import VisibleConsole
from overnight.api.progress_view import View, html, line, screen
from overnight.tasks.engine.progress import Interval, Progress, StageProgress

RUNNING = Progress(
    seconds=61.0,
    stages={
        "ingest": StageProgress(12_000, None),
        "preprocess": StageProgress(9_100, 231.4),
        "infer": StageProgress(8_400, 216.2),
        "write": StageProgress(6_000, 99.96),
    },
    total=12_000,
    resumed=400,
    filtered=12,
    quarantined=3,
    tokens=120_400,
    cost=1.25,
    load={
        "cpus_busy": 0.92,
        "memory_bytes": 5.5e9,
        "object_store_bytes": 3.1e8,
        "devices": 2.0,
        "devices_busy": 0.87,
    },
    incident="infer: a worker died, and another took its 512 rows",
    time_left=Interval(200.0, 130.0, 250.0),
)
VIEW = View(83.0, "infer: loading the models and running them", "2026-11-17", RUNNING, 10.0)


def drawn(view: View, width: int = 100) -> str:
    console = VisibleConsole(record=True, file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(screen(view))
    return "\n".join(text.rstrip() for text in console.export_text().splitlines())


def test_the_screen_has_every_fact_of_a_run() -> None:
    text = drawn(VIEW)
    assert text.startswith("1 min 23 s  2026-11-17: infer: loading the models and running them\n")
    lines = [" ".join(text.replace("━", "").split()) for text in text.splitlines()]
    assert "ingest 100 % 12,000 of 12,000" in lines
    assert "preprocess 75 % 9,100 of 12,000 231/s" in lines
    assert "write 50 % 6,000 of 12,000 100.0/s" in lines
    assert "about 3 min 10 s left (80 %: 2 min to 4 min)" in text
    assert "400 resumed, 12 filtered, 3 quarantined, 120,400 tokens, cost 1.25" in text
    assert "CPUs 92 % busy, 2 devices 87 % busy, memory 5.1 GiB, object store 295.6 MiB" in text
    assert "last incident: infer: a worker died" in text


def test_the_line_has_the_same_facts() -> None:
    text = line(VIEW)
    assert "preprocess: 9,100 of 12,000 rows, 231/s · infer: 8,400 of 12,000 rows, 216/s" in text
    for fact in ("about 3 min 10 s left", "400 resumed", "cost 1.25", "2 devices 87 % busy", "last incident: infer"):
        assert fact in text


def test_a_narrow_terminal_shows_all_stages_in_lines_of_their_own() -> None:
    lines = drawn(VIEW, width=60).splitlines()
    assert [text.split()[0] for text in lines if "━" in text] == ["ingest", "preprocess", "infer", "write"]


def test_before_the_first_rows_the_phase_is_shown_and_nothing_is_at_zero_percent() -> None:
    view = View(1.0, "Starting Ray, about 10 s")
    assert drawn(view) == "1 s  Starting Ray, about 10 s"
    assert line(view) == "Starting Ray, about 10 s"


def test_before_the_first_rows_earlier_runs_give_the_time_left() -> None:
    view = View(35.0, "Starting Ray, about 10 s", expected=Interval(65.0, 45.0, 125.0))
    assert line(view) == "Starting Ray, about 10 s"  # receipts do not have the seconds of the start
    view = replace(view, phase="ingest: listing the source", beginning=30.0)
    assert drawn(view).splitlines()[-1] == "about 1 min left (80 %: 40 s to 2 min)"
    assert line(view) == "about 1 min left (80 %: 40 s to 2 min) · ingest: listing the source"
    assert "about 3 min" in line(replace(VIEW, expected=view.expected))


def test_the_end_keeps_full_bars_while_the_rows_are_published() -> None:
    done = replace(RUNNING, is_complete=True, time_left=None)
    view = View(90.0, "write: checking the rows and publishing them", "2026-11-17", done)
    text = drawn(view)
    assert text.count("100 %") == 4
    assert "about" not in text
    assert line(view).endswith("write: checking the rows and publishing them")


def test_what_it_waits_for_is_named() -> None:
    view = replace(VIEW, progress=replace(RUNNING, waits_for="infer: 2 workers do not start; 0 of 2 GPUs free"))
    assert "waits for infer: 2 workers do not start; 0 of 2 GPUs free" in drawn(view)
    assert "waits for infer" in line(view)


def test_rows_of_unknown_number_have_a_moving_bar_without_a_percentage() -> None:
    text = drawn(replace(VIEW, progress=replace(RUNNING, total=None, time_left=None)))
    assert "%" not in text.split("CPUs")[0]
    assert "9,100" in text


@pytest.mark.parametrize("draw", [drawn, line, html])
def test_texts_from_data_do_no_harm(draw) -> None:  # type: ignore[no-untyped-def]
    bad = "<b onclick=x>\x1b[2J\u202egnp[bold]\nnext"
    view = View(1.0, bad, bad, replace(RUNNING, incident=bad, waits_for=bad), backfill=bad, backfill_share=0.5)
    text = draw(view)
    for character in ("\x1b", "\u202e"):
        assert character not in text
    assert "[bold]" in text
    if draw is html:
        assert "<b onclick" not in text


def test_a_backfill_has_a_bar_above_the_stages() -> None:
    view = replace(VIEW, backfill="backfill: 2 of 7", backfill_share=2 / 7)
    text = drawn(view)
    assert text.index("backfill: 2 of 7") < text.index("ingest")
    assert "28 %" in text
