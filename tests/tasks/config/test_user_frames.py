"""The reason of a failed row names the innermost line of the user's own code, wherever the error came from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import overnight
from overnight.tasks.config import user_frames
from overnight.tasks.errors import RowError
from overnight.tasks.rows import blocks
from overnight.tasks.rows.error_text import error_message

STEPS = """import json

def clean():
    return json.loads("{")

def leave():
    raise SystemExit(3)

def two_lines():
    raise ValueError("first\\nsecond")
"""


@pytest.fixture
def raised_by(tmp_path: Path) -> Callable[[str], Any]:
    """The error of a function of the user's own module."""
    code: dict[str, Any] = {}
    (tmp_path / "steps.py").write_text(STEPS)
    exec(compile(STEPS, str(tmp_path / "steps.py"), "exec"), code)

    def run(name: str) -> Any:
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - of several kinds
            code[name]()
        return caught.value

    return run


def test_the_place_is_the_innermost_line_that_is_no_library_s(raised_by: Callable[[str], Any]) -> None:
    error = raised_by("clean")
    assert isinstance(error, json.JSONDecodeError)
    assert error_message(error).endswith("(char 1) (steps.py:4, in clean)")
    assert user_frames.quoted(error) == '\n  steps.py:4, in clean: return json.loads("{")'
    assert error_message(error.with_traceback(None)).endswith("(char 1)"), "libraries alone have no place"


def test_the_place_ends_the_first_line_of_a_reason(raised_by: Callable[[str], Any]) -> None:
    assert error_message(raised_by("two_lines")) == "first (steps.py:10, in two_lines)\nsecond"


def test_a_row_error_has_the_place_of_its_cause_once(raised_by: Callable[[str], Any]) -> None:
    error = RowError("the code called sys.exit(3)")
    error.__cause__ = raised_by("leave")
    told = error_message(error)
    assert told == "the code called sys.exit(3) (steps.py:7, in leave)"
    again = RowError(f"a#1: {told} (1 of 2 rows)")
    again.__cause__ = error.__cause__
    assert error_message(again) == f"a#1: {told} (1 of 2 rows)"


@pytest.mark.parametrize(
    ("file", "is_own"),
    [
        ("/home/me/job/steps.py", True),
        ("/home/me/.venv/lib/python3.11/site-packages/PIL/Image.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
        (json.__file__, False),
        (blocks.__file__, False),
        (overnight.__file__, False),
    ],
)
def test_own_code_is_no_part_of_overnight_of_python_or_of_a_package(file: str, is_own: bool) -> None:
    assert user_frames.is_own(file) == is_own
