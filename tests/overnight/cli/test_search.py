"""What `overnight search` prints: matches as a table where that fits, else with their texts whole."""

from typing import Any

import pytest

from overnight.cli.search import show_matches


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
