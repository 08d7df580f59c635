"""A comparison on the terminal: long texts are folded, markup of data is text."""

from pathlib import Path

import pytest

from overnight.cli.compare_view import show_comparison
from tests.flows.compare.sides_by_hand import compared, labelled


def test_the_terminal_shows_the_verdict_flips_distances_rows_of_one_side_and_both_speeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    a = labelled(["[red]x[/red]", "b", "c"], score=[0.5, 0.5, 0.5])
    b = labelled(["y", "b"], score=[0.25, 0.5])
    show_comparison(compared(tmp_path, a, b, **{"2": "ValueError: bad"}))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "They differ"
    assert "only in A: 1 rows, 1 of them quarantined in B: 2" in lines
    assert "1 x [red]x[/red] -> y" in lines
    assert any(line.startswith("score: distance of 2 rows: mean 0.125, median 0.125") for line in lines)
    assert [line.split()[0] for line in lines[-2:]] == ["A", "B"]
