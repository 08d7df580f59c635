"""The table leaf x promise of all contract suites: `python -m tests.contracts.table` writes it to README.md here."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.contracts.suite import Suite, as_markdown

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
INTRODUCTION = """# Contracts

Each suite holds the leaves of one kind to the same promises. `test` is a test of this promise for this leaf. A number
is the reason why the promise does not apply to it. `python -m tests.contracts.table` writes this page, and a test fails
if it is out of date.

"""


def folders() -> list[Path]:
    return sorted(file.parent for file in FOLDER.glob("*/suite.py"))


def suites() -> Iterator[Suite[Any]]:
    """Yield the suites of all folders, with the promises that their test files declare."""
    for folder in folders():
        package = f"tests.contracts.{folder.name}"
        for file in sorted(folder.glob("test_*.py")):
            importlib.import_module(f"{package}.{file.stem}")
        members = vars(importlib.import_module(f"{package}.suite")).values()
        yield from (member for member in members if isinstance(member, Suite))


def page() -> str:
    return INTRODUCTION + as_markdown(suites()).rstrip() + "\n"


if __name__ == "__main__":
    os.environ.setdefault("OVERNIGHT_DEMO", str(FOLDER))
    PAGE.write_text(page())
    sys.stdout.write(page())
