"""What the terminal shows: matches as a table where that fits, else with their texts whole; and where files lie."""

import time
from typing import Any
from uuid import UUID

import pytest

from overnight.cli.progress_bars import progress, show_matches, show_receipt
from overnight.flows.job.model import Job
from tests.prefect_api import ask


def found(*texts: str) -> dict[str, Any]:
    matches = [{"score": 0.5, "row_id": f"{n}.txt", "text": text, "n": n} for n, text in enumerate(texts)]
    about = {"partitions": ["all"], "skipped": [], "sheet": None, "job": "texts", "seconds": 1.0}
    return {"matches": matches, "rows": 2, "rows_without_embedding": 0, "exact": True, **about}


def test_matches_are_a_table_where_it_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_matches(found("a [bold] word", "another"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["│", "0.5000", "│", "0.txt", "│", "a", "[bold]", "word", "│", "0", "│"] in lines


def test_long_texts_are_shown_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = "a [bold] word " * 20
    show_matches(found(text, "another"))
    shown = capsys.readouterr().out
    assert "0.5000  0.txt\n" in shown
    assert "│" not in shown
    assert " ".join(text.split()) in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_the_files_of_a_sample_are_named_where_they_lie_and_what_was_passed_over_in_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = {"source": {"kind": "text", "path": "in"}, "sink": {"kind": "parquet", "path": "/out"}}
    job = Job.model_validate({"name": "texts", **written})
    numbers = dict.fromkeys(["rows_in", "rows_out", "rows_filtered", "rows_quarantined", "rows_resumed"], 1)
    times = {"finished_at": "2026", "seconds": 1.0, "rows_per_second": 1.0}
    receipt = {"job": "texts", "partition": "all", "status": "published", "files": ["a.parquet"], **numbers, **times}
    for limit_rows, file in ((None, "/out/a.parquet"), (5, "/out/_overnight/samples/published/a.parquet")):
        show_receipt({**receipt, "limit_rows": limit_rows}, job)
        assert f"  file: {file}\n" in capsys.readouterr().out
    show_receipt({**receipt, "passed_over": {"FIFO": {"files": 1, "names": ["pipe.txt"]}}}, job)
    assert "  passed over: 1 file; FIFO: pipe.txt\n" in capsys.readouterr().out
    show_receipt({**receipt, "left_out": ["image", "pdf"]}, job)
    assert "  columns left out: image, pdf (see sink.keep_columns)\n" in capsys.readouterr().out


def test_without_a_terminal_lines_say_which_task_runs_and_how_far_the_rows_are(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("overnight.cli.progress_bars.SECONDS_BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr("overnight.cli.progress_bars.SECONDS_BETWEEN_LINES", 0.2)
    flow = ask(prefect_api, "/flows/", {"name": "test-terminal"})["id"]
    run = ask(prefect_api, "/flow_runs/", {"flow_id": flow})["id"]
    shown = ""

    def wait_for(text: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while text not in shown and time.monotonic() < deadline:
            time.sleep(0.1)
            shown += capsys.readouterr().err
        assert text in shown

    with progress("shown", UUID(run), ("ingest", "infer")):
        wait_for(" s  waiting for the first task\n")
        task = {"flow_run_id": run, "task_key": "infer", "dynamic_key": "0", "name": "infer-0"}
        ask(prefect_api, "/task_runs/", {**task, "state": {"type": "RUNNING"}})
        wait_for(" s  infer: loading the models and running them\n")
        for key, percent in (("shown-progress-infer", 40), ("shown-progress-ingest", 70)):
            ask(prefect_api, "/artifacts/", {"key": key, "type": "progress", "data": percent, "description": "rows"})
        wait_for(" s  ingest 70%, infer 40%\n")
    ask(prefect_api, f"/flows/{flow}", method="DELETE")


def test_what_is_printed_cannot_act_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "a\x1b]0;title\x07\x1b[2J\x9b1m.jpg"
    for columns in ("300", "30"):  # a table, and lines
        monkeypatch.setenv("COLUMNS", columns)
        show_matches(found(evil) | {"sheet": evil, "skipped": [{"partition": "all", "why": evil}]})
        printed = capsys.readouterr().out
        assert "\\x1b]0;title" in printed
        assert not set(printed) & {"\x1b", "\x07", "\x9b"}
