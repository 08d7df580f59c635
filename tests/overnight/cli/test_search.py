"""What `overnight search` prints: matches as a table where that fits, else with their texts whole."""

from collections.abc import Callable
from typing import Any

import pytest

from overnight.cli.search import show_matches

EVIL = "a\x1b]0;title\x07\x1b[2J\x9b1m.jpg"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def show(*texts: str, width: int = 80, **more: Any) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        matches = [{"score": 0.5, "row_id": f"{n}.txt", "text": text, "n": n} for n, text in enumerate(texts)]
        about = {"partitions": ["all"], "skipped": [], "sheet": None, "job": "texts", "seconds": 1.0}
        show_matches({"matches": matches, "rows": 2, "rows_without_embedding": 0, "exact": True, **about, **more})
        return capsys.readouterr().out

    return show


def test_matches_are_a_table_where_it_fits_and_otherwise_long_texts_are_whole(shown: Callable[..., str]) -> None:
    lines = [line.split() for line in shown("a [bold] word", "another").splitlines()]
    assert ["│", "0.5000", "│", "0.txt", "│", "a", "[bold]", "word", "│", "0", "│"] in lines
    text = "a [bold] word " * 20
    out = shown(text, "another")
    assert "0.5000  0.txt\n" in out
    assert "│" not in out
    assert " ".join(text.split()) in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines())


def test_a_search_without_a_match_prints_what_it_compared(shown: Callable[..., str]) -> None:
    assert "texts: compared with 2 rows of 1 partitions in 1.0 s; 2 without an embedding" in shown(
        rows_without_embedding=2
    )


@pytest.mark.parametrize("width", [300, 30])  # a table, and lines
def test_what_is_printed_cannot_act_on_the_terminal(shown: Callable[..., str], width: int) -> None:
    printed = shown(EVIL, width=width, sheet=EVIL, skipped=[{"partition": "all", "why": EVIL}])
    assert "\\x1b]0;title" in printed
    assert not set(printed) & {"\x1b", "\x07", "\x9b"}
