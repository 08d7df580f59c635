"""The user's own check: what it is given, and what becomes of its answer."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.user_check import ask as ask_ray
from overnight.tasks.write.checks.user_check import run
from tests.conftest import WORKER_PATH

CODE = """
def fine(receipt, previous, rows):
    return None

def sentence(receipt, previous, rows):
    return "too dark"

def several(receipt, previous, rows):
    return [f"{receipt['job']} after {previous['job']}", f"{rows.count_rows()} rows of {rows.schema.names}"]

def counted(receipt, previous, rows):
    return str(rows.to_table(columns=["x"])["x"].to_pylist())

def raises(receipt, previous, rows):
    low = 3
    assert low > 4, "too low"

def answers(receipt, previous, rows):
    return True

def dies(receipt, previous, rows):
    import os
    os.kill(os.getpid(), 9)

def two(receipt, previous):
    pass
"""


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "hook_test_checks.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    files = []
    for number in range(2):
        place = tmp_path / "_publishing" / f"{number}.parquet.part"
        place.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [number, number]}), place)
        files.append(Location(str(place)))
    yield lambda name, files=files: run(f"hook_test_checks:{name}", {"job": "now"}, {"job": "before"}, files)
    sys.modules.pop("hook_test_checks", None)


@pytest.mark.parametrize(
    ("function", "sentences"),
    [
        ("fine", []),
        ("sentence", ["too dark"]),
        ("several", ["now after before", "4 rows of ['x']"]),
        ("counted", ["[0, 0, 1, 1]"]),
        ("raises", ["it raised AssertionError: too low (hook_test_checks.py, line 16)"]),
        ("answers", ["expected None, a sentence or a list of sentences, found bool True"]),
    ],
)
def test_problems_come_back_as_sentences_about_the_rows_to_be_published(ask: Any, function: str, sentences: list[str]):
    assert ask(function) == sentences


def test_no_rows_and_a_function_of_other_arguments_are_told(ask: Any):
    assert ask("several", [])[1] == "0 rows of []"
    assert "takes 2 positional arguments but 3 were given" in ask("two")[0]


def test_a_function_that_is_not_there_is_an_error_of_the_job(ask: Any):
    with pytest.raises(JobError, match="no_such in hook_test_checks"):
        ask("no_such")


def test_one_that_kills_its_process_is_a_failed_check(ray_session: None):
    (WORKER_PATH / "hook_test_deadly.py").write_text(CODE)
    assert ask_ray("hook_test_deadly:fine", {}, None, []) == []
    assert "its process died twice" in ask_ray("hook_test_deadly:dies", {}, None, [])[0]
