"""`overnight preview` as it is typed: what it prints, its exit codes, and what it draws."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from overnight.cli.preview import show_preview
from overnight.cli.rows_view import PIECE, drawn, protocol_of
from overnight.flows.preview import Preview
from tests import jobs
from tests.overnight.cli.results_on_disk import typed

CODE = """
import numpy as np

print("loaded")


def level(batch):
    if (batch["image"] > 100).any():
        raise ValueError("too bright")
    level = np.array([float(image.mean()) for image in batch["image"]])
    return {"level": level, "vector": np.ones((len(level), 40))}
"""
DAY = ("--partition", "2026-01-02")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job with a schedule, over two dark photos and a bright one of a day."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    day = tmp_path / "in/date=2026-01-02"
    day.mkdir(parents=True)
    for number in range(3):
        Image.fromarray(np.full((8, 8, 3), number * 60, np.uint8)).save(day / f"{number}.png")
    (tmp_path / "dark_code.py").write_text(CODE)
    model = {"kind": "python", "target": "dark_code:level"}
    jobs.write_job(
        tmp_path / "job.yaml",
        name="dark",
        source={"kind": "images", "path": "in/date={partition}"},
        inference=[model, {"kind": "filter_rows", "expression": "level >= 0"}],
        schedule=jobs.DAILY,
    )
    return tmp_path


def test_the_rows_the_failures_and_the_seconds_are_printed_and_nothing_is_left(folder: Path) -> None:
    code, out, _ = typed("preview", folder, *DAY)
    lines = [" ".join(line.replace("│", " ").split()) for line in out.splitlines()]
    assert code == 0
    assert "1.png 60 [1.00, 1.00, … 40]" in lines
    assert "2.png quarantined in preprocess: ValueError: too bright (dark_code.py:9, in level)" in lines
    assert "dark/2026-01-02: 2 rows, 0 filtered, 1 quarantined" in lines
    assert any(line.startswith("inference.0 dark_code:level 0.") for line in lines)
    assert "columns left out: image (see sink.keep_columns)" in lines
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"dark_code.py", "in", "job.yaml"}


def test_json_is_one_line_a_row_on_stdout_alone(folder: Path) -> None:
    code, out, err = typed("preview", folder, *DAY, "--json", "--set", "sink.keep_columns=[image]", "--rows", "2")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["row_id"] for row in rows] == ["0.png", "1.png"]
    assert (len(rows[1]["vector"]), np.shape(rows[1]["image"])) == (40, (8, 8, 3))
    assert "dark/2026-01-02: 2 rows" in err


def test_the_exit_code_is_2_for_bad_usage_and_1_for_a_failure_or_no_row(folder: Path) -> None:
    for wrong in (["--set", "sink.kind=nothing"], ["--partition", "yesterday"], ["--rows", "0"]):
        assert typed("preview", folder, *wrong)[0] == 2
    code, out, err = typed("preview", folder, "--partition", "2026-01-03")
    assert (code, out) == (1, "")
    assert err.startswith("failed: dark/2026-01-03 in ingest: source.path: expected a directory")
    for file in ("0.png", "1.png"):
        (folder / "in/date=2026-01-02" / file).unlink()
    assert typed("preview", folder, *DAY)[0] == 1


def test_a_wrong_price_of_the_environment_is_a_sentence_after_the_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_PRICE_PER_GPU_HOUR", "cheap")
    code, out, err = typed("preview", folder, *DAY, "--set", "inference.0.num_gpus=1")
    assert (code, "expected a number, found 'cheap'" in err, "Traceback" in err, bool(out)) == (2, True, False, True)


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("columns", [1, 9])  # a table, and lines
def test_texts_are_cut_to_the_width_and_cannot_act_on_the_terminal(
    width: int, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    evil = "\x1b]0;title\x07 [bold]" + "long " * 100
    table = pa.table({"row_id": ["a"], **{f"column {number}": [evil] for number in range(columns)}})
    show_preview(Preview("p", "all", table, pa.table({}), pa.table({}), 0, {"[bold]": 1.0}))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert out.count("\\x1b]0;title") == columns
    assert ("…" in out, "\x1b" in out) == (True, False)


def test_a_terminal_that_draws_pictures_gets_each_image_whole() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 60, 3), np.uint8)).save(buffer, "PNG")
    png = base64.b64encode(buffer.getvalue()).decode()
    commands = drawn(png, 8, "kitty").removesuffix("\n").split("\x1b\\")[:-1]
    keys, pieces = zip(*(command.removeprefix("\x1b_G").split(";") for command in commands), strict=True)
    assert "".join(pieces) == png
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= PIECE
    assert keys[0] == "a=T,f=100,r=8,q=2,m=1"
    assert [key[-1] for key in keys] == [*"1" * (len(keys) - 1), "0"]
    assert drawn(png, 8, "iterm2") == f"\x1b]1337;File=inline=1;height=8;preserveAspectRatio=1:{png}\x07\n"


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, None),
    ],
)
def test_the_terminal_is_known_by_its_environment(environment: dict[str, str], protocol: str | None) -> None:
    assert protocol_of(environment) == protocol
