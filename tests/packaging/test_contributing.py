"""The steps of CONTRIBUTING.md add a source, a step, a model and a sink, which a job then uses."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### A (source|step|model|sink)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE))
JOB = """
name: contributed
source: {kind: subtitles, path: in}
preprocess: [{kind: trim_text, column: text}]
inference: [{kind: text_length, column: text}]
sink: {kind: tsv, path: out}
"""
WRITE = """
import io, pyarrow as pa
from overnight.sinks import TsvSink
file = io.BytesIO()
with TsvSink.writer(file, pa.schema({"a": pa.int64()})) as write:
    write(pa.table({"a": [1, 2]}))
print(file.getvalue(), *TsvSink.reader(io.BytesIO(file.getvalue()), {}))
"""


def add(section: str, checkout: Path) -> None:
    """Do the first two steps of a section, which are code."""
    path = re.search(r"1\. Write `(\S+)`", section)
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    line = re.search(r"2\. Add `(\w+)` to `(\w+)` in `(\S+)`, and to `(\S+)`", section)
    assert path
    assert code
    assert line
    (checkout / path[1]).write_text(textwrap.dedent(code[1]))
    name, union, kinds, face = line.groups()
    statement = f"from overnight.{path[1].removesuffix('.py').replace('/', '.')} import {name}\n"
    text, count = re.subn(
        rf"^({union} = (?:Annotated\[\s+)?)",
        rf"{statement}\1{name} | ",
        (checkout / kinds).read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    (checkout / kinds).write_text(text)
    with (checkout / face).open("a") as file:
        file.write(statement)


def run_python(checkout: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["source", "step", "model", "sink"])
def test_each_kind_of_leaf_is_added_in_five_steps(kind: str) -> None:
    assert re.findall(r"^(\d)\. ", SECTIONS[kind], re.MULTILINE) == ["1", "2", "3", "4", "5"]


def test_a_job_uses_the_leaves_of_the_page(tmp_path: Path) -> None:
    for folder in ("flows", "overnight", "tasks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for section in SECTIONS.values():
        add(section, tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.srt").write_text("  a line\n")
    command = "from overnight.cli.main import main; main(prog_name='overnight')"
    rows = run_python(tmp_path, "-c", command, "preview", "job.yaml", "--json")
    assert '"text":"a line"' in rows.replace(": ", ":")
    assert '"length":6' in rows.replace(": ", ":")
    assert "b'\"a\"\\n1\\n2\\n' pyarrow.Table" in run_python(tmp_path, "-c", WRITE)
