"""`overnight preview` as it is typed: what it prints, its exit codes, and what it does not import."""

import base64
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from PIL import Image

from overnight.cli import preview_view
from overnight.cli.main import main
from overnight.cli.terminal_pictures import PIECE, drawn, protocol_of
from overnight.flows.preview import Preview

CODE = """
import numpy as np

print("loaded")


def level(batch):
    if (batch["image"] > 100).any():
        raise ValueError("too bright")
    level = np.array([float(image.mean()) for image in batch["image"]])
    return {"level": level, "vector": np.ones((len(level), 40))}
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job file with a schedule, over two dark photos and a bright one of a day."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    day = tmp_path / "in/date=2026-01-02"
    day.mkdir(parents=True)
    for number in range(3):
        Image.fromarray(np.full((8, 8, 3), number * 60, np.uint8)).save(day / f"{number}.png")
    (tmp_path / "dark_code.py").write_text(CODE)
    job = {
        "name": "dark",
        "source": {"kind": "images", "path": "in/date={partition}"},
        "inference": [
            {"kind": "python", "target": "dark_code:level"},
            {"kind": "filter_rows", "expression": "level >= 0"},
        ],
        "sink": {"kind": "parquet", "path": "out"},
        "schedule": {"cron": "0 2 * * *"},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path / "job.yaml"


def typed(path: Path, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["preview", str(path), *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_rows_the_failures_and_the_seconds_are_printed(path: Path) -> None:
    code, out, _ = typed(path, "--partition", "2026-01-02")
    lines = [" ".join(line.replace("│", " ").split()) for line in out.splitlines()]
    assert code == 0
    assert "1.png 60 [1.00, 1.00, … 40]" in lines
    assert "2.png quarantined in preprocess: ValueError: too bright (dark_code.py:9, in level)" in lines
    assert "dark/2026-01-02: 2 rows, 0 filtered, 1 quarantined" in lines
    assert any(line.startswith("inference.0 dark_code:level 0.") for line in lines)
    assert "columns left out: image (see sink.keep_columns)" in lines


def test_json_is_one_line_a_row_on_stdout_alone(path: Path) -> None:
    code, out, err = typed(
        path, "--partition", "2026-01-02", "--json", "--set", "sink.keep_columns=[image]", "--rows", "2"
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["row_id"] for row in rows] == ["0.png", "1.png"]
    assert (len(rows[1]["vector"]), np.shape(rows[1]["image"])) == (40, (8, 8, 3))
    assert "dark/2026-01-02: 2 rows" in err


def test_the_exit_code_is_2_for_a_bad_job_and_1_for_a_failure_or_no_row(path: Path) -> None:
    assert typed(path, "--set", "sink.kind=nothing")[0] == 2
    assert typed(path, "--partition", "yesterday")[0] == 2
    assert typed(path, "--rows", "0")[0] == 2
    code, out, err = typed(path, "--partition", "2026-01-03")
    assert (code, out) == (1, "")
    assert err.startswith(
        "failed: dark/2026-01-03 in ingest: source.path: expected a directory or bucket, found nothing"
    )
    for file in ("0.png", "1.png"):
        (path.parent / "in/date=2026-01-02" / file).unlink()
    assert typed(path, "--partition", "2026-01-02")[0] == 1


def test_a_preview_imports_neither_prefect_nor_ray_and_its_output_is_clean(path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "from overnight.cli.main import main\n"
        "heavy = ('prefect', 'ray', 'torch', 's3fs')\n"
        "atexit.register(lambda: print('imported', [name for name in heavy if name in sys.modules]))\n"
        "main(['preview', 'job.yaml', '--partition', '2026-01-02'], prog_name='overnight')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (0, "loaded\n")
    assert done.stdout.splitlines()[-1] == "imported []"
    assert {*os.listdir(path.parent)} - {"__pycache__"} == {"dark_code.py", "in", "job.yaml"}


def test_texts_are_cut_to_the_width_and_cannot_act_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;title\x07 [bold]" + "long " * 100
    many = {f"column {number}": [evil] for number in range(9)}
    for columns, names in (({"text": [evil]}, 2), (many, 10)):  # a table, and lines
        for width in (60, 100):
            monkeypatch.setenv("COLUMNS", str(width))
            table = pa.table({"row_id": ["a"], **columns})
            preview_view.show_preview(Preview("p", "all", table, pa.table({}), pa.table({}), 0, {"[bold]": 1.0}))
            out = capsys.readouterr().out
            assert max(map(len, out.splitlines())) <= width
            assert out.count("\\x1b]0;title") == names - 1
            assert "…" in out
            assert "\x1b" not in out


def test_a_terminal_that_draws_pictures_gets_each_image_whole() -> None:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (60, 60, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
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
