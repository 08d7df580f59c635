"""The options of `overnight history`: the range, the document and the page."""

import json
from pathlib import Path

import pytest

from tests.overnight.cli.results_on_disk import typed
from tests.overnight.cli.test_history_view import write_history


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_history(tmp_path)


def test_the_document_has_a_line_for_each_partition_of_the_range(folder: Path) -> None:
    code, out, _ = typed("history", folder, "--partition", "2026-01-03..2026-01-04", "--json")
    first, second = json.loads(out)
    assert (code, first["partition"], first["regressions"]) == (0, "2026-01-03", [])
    assert second["regressions"] == [{"kind": "slower", "text": "10 rows/s, before 100 rows/s"}]
    assert second["changes"] == [{"kind": "versions", "text": "torch 2.0 -> 2.1"}]
    assert [line["partition"] for line in json.loads(typed("history", folder, "--last", "1", "--json")[1])] == [
        "2026-01-05"
    ]


def test_the_page_links_to_the_reports(folder: Path) -> None:
    code, _, err = typed("history", folder, "--html", str(folder / "page.html"))
    page = (folder / "page.html").read_text()
    assert (code, f"history: {folder / 'page.html'}\n") == (0, err)
    assert 'href="out/_overnight/date%3D2026-01-04/report.html"' in page


def test_links_to_a_folder_with_odd_characters_lead_there(tmp_path: Path) -> None:
    folder = tmp_path / "a #1"
    folder.mkdir()
    write_history(folder)
    typed("history", folder, "--html", str(tmp_path / "page.html"))
    assert 'href="a%20%231/out/_overnight/date%3D2026-01-04/report.html"' in (tmp_path / "page.html").read_text()


def test_a_price_that_is_no_number_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERNIGHT_PRICE_PER_CPU_HOUR", "much")
    code, _, err = typed("history", folder, "--last", "1")
    assert (code, "expected a number, found 'much'" in err) == (2, True)


@pytest.mark.parametrize("days", ["2026-01-04..2026-01-03", "yesterday", "2026-01-03..soon"])
def test_a_wrong_range_is_refused(folder: Path, days: str) -> None:
    code, _, err = typed("history", folder, "--partition", days)
    assert (code, "expected" in err) == (2, True)
