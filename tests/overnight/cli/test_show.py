"""`overnight show` as it is typed: which rows it shows, in which form, and what it says if there are none."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from rich.console import Console

from overnight.cli import rows_view
from overnight.flows.job.loading import load_job
from overnight.flows.ledger.samples import KEPT, keep_sample
from tests.overnight.cli.results_on_disk import typed, write_job, write_quarantine, write_result

ROWS = pa.table({"row_id": [f"a#{n}" for n in range(8)], "uri": ["/in/a"] * 8, "n": range(8)})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "120")
    write_job(tmp_path)
    return tmp_path


def shown_ids(out: str) -> list[str]:
    return [json.loads(line)["row_id"] for line in out.splitlines()]


def test_it_shows_the_first_rows_of_the_newest_partition_and_says_how_many_there_are(folder: Path) -> None:
    write_result(folder, "2026-01-01", ROWS.slice(0, 1))
    write_result(folder, "2026-01-02", ROWS)
    code, out, _ = typed("show", folder)
    assert code == 0
    assert "daily/2026-01-02: published at 2026-01-09T00:00:00Z, 5 of 8 rows" in out
    assert [f"a#{n}" in out for n in range(8)] == [True] * 5 + [False] * 3
    assert shown_ids(typed("show", folder, "--partition", "2026-01-01", "--json")[1]) == ["a#0"]


def test_json_is_one_line_a_row_and_where_chooses_rows_by_a_condition(folder: Path) -> None:
    write_result(folder, "2026-01-01", ROWS)
    code, out, err = typed("show", folder, "--json", "--where", "n > 2 and row_id <> 'a#4'", "-n", "2")
    assert (code, shown_ids(out), err) == (0, ["a#3", "a#5"], "")
    assert json.loads(out.splitlines()[0]) == {"row_id": "a#3", "uri": "/in/a", "n": 3}


def test_rows_whose_condition_cannot_be_computed_are_left_out_and_counted(folder: Path) -> None:
    write_result(folder, "2026-01-01", ROWS)
    _, out, err = typed("show", folder, "--json", "--where", "6 / n >= 3")
    assert shown_ids(out) == ["a#1", "a#2"]
    assert "1 rows left out, the first: a#0: --where: " in err


@pytest.mark.parametrize(
    ("where", "said"),
    [("m > 1", "needs a column 'm'; the columns are row_id, uri, n."), ("n >", "it ends too early")],
)
def test_a_wrong_condition_is_bad_usage_and_says_what_is_wrong(folder: Path, where: str, said: str) -> None:
    write_result(folder, "2026-01-01", ROWS)
    code, _, err = typed("show", folder, "--where", where)
    assert (code, said in err) == (2, True)


def test_a_condition_that_no_row_meets_leads_to_the_quarantine(folder: Path) -> None:
    write_result(folder, "2026-01-01", ROWS, {"b#0": "bad"})
    code, out, _ = typed("show", folder, "--where", "row_id = 'b#0'")
    assert code == 0
    assert "0 of 8 rows; none meets the condition. 1 quarantined: add --quarantine" in " ".join(out.split())


def test_the_quarantine_has_the_reasons_with_counts_and_each_row_with_its_reason_first(folder: Path) -> None:
    write_result(folder, "2026-01-01", ROWS, {"b#0": "bad", "b#1": "bad", "b#2": "worse"})
    _, out, _ = typed("show", folder, "--quarantine")
    lines = out.splitlines()
    assert lines[0] == "daily/2026-01-01: 3 quarantined, 3 shown"
    assert lines[1:3] == ["  2 x infer: ValueError: bad", "  1 x infer: ValueError: worse"]
    row = ["bad", "  error_type: ValueError", "  stage: infer", "  row_id: b#0", "  uri: /in/b#0"]
    assert lines[3:8] == row
    _, out, _ = typed("show", folder, "--quarantine", "--where", "row_id = 'b#2'", "--json")
    assert list(json.loads(out)) == ["error_message", "error_type", "stage", "row_id", "uri"]
    assert json.loads(out)["error_message"] == "worse"


def test_the_quarantine_of_a_later_run_that_failed_is_shown_instead(folder: Path) -> None:
    write_result(folder, "2026-01-01", ROWS, {"b#0": "old"})
    ledger = folder / "out/_overnight/date=2026-01-02"
    write_quarantine(ledger / "failure-quarantine.parquet", {"c#0": "new"})
    failure = {"stage": "infer", "failed_at": "2026-01-03", "error_message": "too many", "quarantine": "there"}
    (ledger / "failure.json").write_text(json.dumps(failure))
    code, out, _ = typed("show", folder, "--quarantine")
    assert code == 0
    assert "daily/2026-01-02: the latest run failed in infer at 2026-01-03, with 1 quarantined, 1 shown" in out
    assert ("new" in out, "old" in out) == (True, False)
    code, _, err = typed("show", folder, "--partition", "2026-01-02")
    assert (code, "its latest run failed: too many. Make it with: overnight run" in err) == (1, True)


def test_without_a_result_it_names_the_command_that_makes_one(folder: Path) -> None:
    code, _, err = typed("show", folder)
    assert code == 1
    assert f"expected a published partition, found none. Make it with: overnight run {folder}/job.yaml" in err
    code, _, err = typed("show", folder, "--sample", "--partition", "2026-01-01")
    assert f"overnight run {folder}/job.yaml --partition 2026-01-01 --limit-rows 100" in err


def test_files_that_are_gone_are_one_sentence(folder: Path) -> None:
    [file] = write_result(folder, "2026-01-01", ROWS)["files"]
    (folder / "out" / file).unlink()
    code, _, err = typed("show", folder)
    assert (code, "found one gone" in err, "Traceback" in err) == (1, True, False)


def test_samples_are_kept_side_by_side_and_the_oldest_go(folder: Path) -> None:
    job = load_job(folder / "job.yaml")
    for number in range(1, KEPT + 2):
        place = folder / "out/_overnight/samples/published/date=2026-01-01"
        for file in place.glob("*"):
            file.unlink()
        keep_sample(job, write_result(folder, "2026-01-01", ROWS.slice(0, number % 7 + 1), sample=f"g{number:02d}"))
    assert shown_ids(typed("show", folder, "--sample", "--json")[1]) == [f"a#{n}" for n in range(5)]
    assert shown_ids(typed("show", folder, "--sample", "--number", "2", "--json")[1]) == ["a#0", "a#1", "a#2"]
    _, out, _ = typed("show", folder, "--sample", "--number", "2")
    assert "daily/2026-01-01/sample-2: sample of 3 rows at" in out
    code, _, err = typed("show", folder, "--sample", "--number", "1")
    assert (code, "the rows of sample-1 of 2026-01-01 are gone: the newest 10 samples are kept" in err) == (1, True)
    code, _, err = typed("show", folder, "--sample", "--number", "99")
    assert (code, "expected one of the samples 1 to 11 of 2026-01-01, found sample-99" in err) == (1, True)


def png(level: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), level, np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_the_page_of_a_job_of_images_has_the_inputs_as_small_pictures(folder: Path) -> None:
    write_job(folder, source={"kind": "images", "path": str(folder / "in/date={partition}")})
    (folder / "0.png").write_bytes(png(7))
    uris = [str(folder / name) for name in ("0.png", "gone.png")]
    write_result(folder, "2026-01-01", pa.table({"row_id": ["0.png", "<b>"], "uri": uris}))
    code, out, _ = typed("show", folder, "--html", str(folder / "page.html"))
    page = (folder / "page.html").read_text()
    assert (code, f"page: {folder}/page.html" in out) == (0, True)
    assert page.startswith("<!doctype html>")
    assert (page.count("data:image/png;base64,"), "&lt;b&gt;" in page) == (1, True)


def test_a_terminal_that_draws_images_gets_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_result(folder, "2026-01-01", pa.table({"row_id": ["0.png"], "image": [png(7)]}))
    monkeypatch.setattr(rows_view, "protocol_of", lambda: "kitty")
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich then prints as to a terminal
    assert "\x1b_Ga=T" in typed("show", folder)[1]


def test_the_images_that_a_sink_wrote_into_files_are_shown(folder: Path) -> None:
    write_job(folder, sink={"kind": "images", "path": str(folder / "out")})
    write_result(folder, "2026-01-01", pa.table({"row_id": ["0.png", "1"], "image_path": ["x.images/0.png", None]}))
    (folder / "out/date=2026-01-01/x.images").mkdir()
    (folder / "out/date=2026-01-01/x.images/0.png").write_bytes(png(7))
    assert "PNG 8x8" in typed("show", folder)[1]


def test_it_imports_neither_prefect_nor_ray(folder: Path) -> None:
    write_result(folder, "2026-01-01", ROWS)
    code = (
        "import sys\nfrom overnight.cli.main import main\n"
        f"try: main(['show', {str(folder / 'job.yaml')!r}])\n"
        "except SystemExit as end: print(end.code, {'prefect', 'ray', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 set()\n")


def test_a_long_text_leaves_every_other_column_its_width(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"row_id": ["a.csv#1"], "text": ["word " * 80], "more": ["other " * 80], "score": [0.25]})
    rows_view.show_rows(Console(width=80), rows)
    line = capsys.readouterr().out.splitlines()[3]
    assert len(line) == 80
    assert line.startswith("│ a.csv#1 │ word word")
    assert line.endswith("… │ 0.25  │")
    assert line.count("other") >= 4
