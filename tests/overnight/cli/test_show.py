"""`overnight show` as it is typed: which rows it shows, in which form, and what it says if there are none."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from rich.console import Console

from overnight.cli import rows_view
from overnight.flows.job.loading import load_job
from overnight.flows.ledger.published_rows import KEPT, keep_sample
from tests.overnight.cli.results_on_disk import typed, write_job, write_quarantine, write_result

DAY = "2026-01-01"
ROWS = pa.table({"row_id": [f"a#{n}" for n in range(8)], "uri": ["/in/a"] * 8, "n": range(8)})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "120")
    write_job(tmp_path)
    return tmp_path


def shown(folder: Path, *arguments: str) -> list[str]:
    """The ids of the rows that are shown as JSON."""
    return [json.loads(line)["row_id"] for line in typed("show", folder, *arguments, "--json")[1].splitlines()]


def test_it_shows_the_first_rows_of_the_newest_partition_and_says_how_many_there_are(folder: Path) -> None:
    write_result(folder, DAY, ROWS.slice(0, 1))
    write_result(folder, "2026-01-02", ROWS)
    code, out, _ = typed("show", folder)
    assert code == 0
    assert "daily/2026-01-02: published at 2026-01-09T00:00:00Z, 5 of 8 rows" in out
    assert [f"a#{n}" in out for n in range(8)] == [True] * 5 + [False] * 3
    assert shown(folder, "--partition", DAY) == ["a#0"]


def test_a_condition_chooses_rows_and_those_of_which_it_cannot_be_computed_are_counted(folder: Path) -> None:
    write_result(folder, DAY, ROWS, {"b#0": "bad"})
    code, out, err = typed("show", folder, "--json", "--where", "n > 2 and row_id <> 'a#4'", "-n", "2")
    rows = [{"row_id": f"a#{n}", "uri": "/in/a", "n": n} for n in (3, 5)]
    assert (code, [json.loads(line) for line in out.splitlines()], err) == (0, rows, "")
    _, out, err = typed("show", folder, "--json", "--where", "6 / n >= 3")
    assert [json.loads(line)["n"] for line in out.splitlines()] == [1, 2]
    assert "1 rows left out, the first: a#0: --where: " in err
    code, out, _ = typed("show", folder, "--where", "row_id = 'b#0'")
    assert code == 0
    assert "0 of 8 rows; none meets the condition. 1 quarantined: add --quarantine" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--where", "m > 1"], 2, "needs a column 'm'; the columns are row_id, uri, n."),
        (["--where", "n >"], 2, "it ends too early"),
        (["--partition", "2026-01-02"], 1, "its latest run failed: too many. Make it with: overnight run"),
        (["--partition", "2026-01-09"], 1, "found none. Make it with: overnight run"),
        (["--sample", "--partition", DAY], 1, f"job.yaml --partition {DAY} --limit-rows 100"),
        (["--partition", "2026-01-03"], 1, "found one gone"),
    ],
)
def test_rows_that_cannot_be_shown_are_one_sentence(
    folder: Path, arguments: list[str], exit_code: int, said: str
) -> None:
    write_result(folder, DAY, ROWS)
    ledger = folder / "out/_overnight/date=2026-01-02"
    ledger.mkdir(parents=True)
    failure = {"stage": "infer", "failed_at": "2026-01-03", "error_message": "too many", "quarantine": "there"}
    (ledger / "failure.json").write_text(json.dumps(failure))
    (folder / "out" / write_result(folder, "2026-01-03", ROWS)["files"][0]).unlink()
    code, _, err = typed(
        "show", folder, *(arguments if "--partition" in arguments else [*arguments, "--partition", DAY])
    )
    assert (code, said in err, "Traceback" in err) == (exit_code, True, False), err


def test_the_quarantine_has_the_reasons_with_counts_and_each_row_with_its_reason_first(folder: Path) -> None:
    write_result(folder, DAY, ROWS, {"b#0": "bad", "b#1": "bad", "b#2": "worse"})
    lines = typed("show", folder, "--quarantine")[1].splitlines()
    assert lines[:8] == [
        *(f"daily/{DAY}: 3 quarantined, 3 shown", "  2 x infer: ValueError: bad", "  1 x infer: ValueError: worse"),
        *("bad", "  error_type: ValueError", "  stage: infer", "  row_id: b#0", "  uri: /in/b#0"),
    ]
    row = json.loads(typed("show", folder, "--quarantine", "--where", "row_id = 'b#2'", "--json")[1])
    assert list(row) == ["error_message", "error_type", "stage", "row_id", "uri"]
    assert row["error_message"] == "worse"


def test_the_quarantine_of_a_later_run_that_failed_is_shown_instead(folder: Path) -> None:
    write_result(folder, DAY, ROWS, {"b#0": "old"})
    ledger = folder / "out/_overnight/date=2026-01-02"
    write_quarantine(ledger / "failure-quarantine.parquet", {"c#0": "new"})
    failure = {"stage": "infer", "failed_at": "2026-01-03", "error_message": "too many", "quarantine": "there"}
    (ledger / "failure.json").write_text(json.dumps(failure))
    code, out, _ = typed("show", folder, "--quarantine")
    assert code == 0
    assert "daily/2026-01-02: the latest run failed in infer at 2026-01-03, with 1 quarantined, 1 shown" in out
    assert ("new" in out, "old" in out) == (True, False)


def test_samples_are_kept_side_by_side_and_the_oldest_go(folder: Path) -> None:
    code, _, err = typed("show", folder)
    assert (code, f"found none. Make it with: overnight run {folder}/job.yaml" in err) == (1, True)
    job = load_job(folder / "job.yaml")
    for number in range(1, KEPT + 2):
        for file in (folder / f"out/_overnight/samples/published/date={DAY}").glob("*"):
            file.unlink()
        keep_sample(job, write_result(folder, DAY, ROWS.slice(0, number % 7 + 1), sample=f"g{number:02d}"))
    assert shown(folder, "--sample") == [f"a#{n}" for n in range(5)]
    assert shown(folder, "--sample", "--number", "2") == ["a#0", "a#1", "a#2"]
    assert f"daily/{DAY}/sample-2: sample of 3 rows at" in typed("show", folder, "--sample", "--number", "2")[1]
    for number, said in (
        ("1", f"the rows of sample-1 of {DAY} are gone: the newest 10 samples are kept"),
        ("99", f"expected one of the samples 1 to 11 of {DAY}, found sample-99"),
    ):
        code, _, err = typed("show", folder, "--sample", "--number", number)
        assert (code, said in err) == (1, True)


def png(level: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), level, np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_the_page_of_a_job_of_images_has_the_inputs_as_small_pictures(folder: Path) -> None:
    write_job(folder, source={"kind": "images", "path": str(folder / "in/date={partition}")})
    (folder / "0.png").write_bytes(png(7))
    uris = [str(folder / name) for name in ("0.png", "gone.png")]
    write_result(folder, DAY, pa.table({"row_id": ["0.png", "<b>"], "uri": uris}))
    code, out, _ = typed("show", folder, "--html", str(folder / "page.html"))
    page = (folder / "page.html").read_text()
    assert (code, f"page: {folder}/page.html" in out) == (0, True)
    assert page.startswith("<!doctype html>")
    assert (page.count("data:image/png;base64,"), "&lt;b&gt;" in page) == (1, True)


def test_images_are_drawn_by_a_terminal_that_can_and_those_that_a_sink_wrote_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_result(folder, DAY, pa.table({"row_id": ["0.png"], "image": [png(7)]}))
    with monkeypatch.context() as terminal:
        terminal.setattr(rows_view, "protocol_of", lambda: "kitty")
        terminal.setenv("FORCE_COLOR", "1")  # Rich then prints as to a terminal
        assert "\x1b_Ga=T" in typed("show", folder)[1]
    write_job(folder, sink={"kind": "images", "path": str(folder / "out")})
    write_result(folder, DAY, pa.table({"row_id": ["0.png", "1"], "image_path": ["x.images/0.png", None]}))
    (folder / f"out/date={DAY}/x.images").mkdir()
    (folder / f"out/date={DAY}/x.images/0.png").write_bytes(png(7))
    assert "PNG 8x8" in typed("show", folder)[1]


def test_a_long_text_leaves_every_other_column_its_width(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"row_id": ["a.csv#1"], "text": ["word " * 80], "more": ["other " * 80], "score": [0.25]})
    rows_view.show_rows(Console(width=80), rows)
    line = capsys.readouterr().out.splitlines()[3]
    assert len(line) == 80
    assert line.startswith("│ a.csv#1 │ word word")
    assert line.endswith("… │ 0.25  │")
    assert line.count("other") >= 4
