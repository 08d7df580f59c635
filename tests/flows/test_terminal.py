"""What the terminal shows: matches as a table where that fits, else with their texts whole; and where files lie."""

from typing import Any

import pytest

from flows.job import Job
from flows.terminal import show_matches, show_receipt


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


def test_the_files_of_a_sample_are_named_where_they_lie(capsys: pytest.CaptureFixture[str]) -> None:
    written = {"source": {"kind": "text", "path": "in"}, "sink": {"kind": "parquet", "path": "/out"}}
    job = Job.model_validate({"name": "texts", **written})
    numbers = dict.fromkeys(["rows_in", "rows_out", "rows_filtered", "rows_quarantined", "rows_resumed"], 1)
    times = {"finished_at": "2026", "seconds": 1.0, "rows_per_second": 1.0}
    receipt = {"job": "texts", "partition": "all", "status": "published", "files": ["a.parquet"], **numbers, **times}
    for limit_rows, file in ((None, "/out/a.parquet"), (5, "/out/_overnight/samples/published/a.parquet")):
        show_receipt({**receipt, "limit_rows": limit_rows}, job)
        assert f"  file: {file}\n" in capsys.readouterr().out
