"""The table of the contracts is that of the suites, and each union of leaves has a suite."""

import re
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.write.kinds import AnySink
from tests.contracts import table
from tests.contracts.suite import Suite, as_markdown, kinds_of

UNIONS = {"Source": Source, "Step": Step, "AnyPredictor": AnyPredictor, "AnySink": AnySink}


def test_the_page_is_up_to_date() -> None:
    assert table.page() == table.PAGE.read_text(), "run python -m tests.contracts.table"


def test_each_test_file_that_a_suite_names_is_there() -> None:
    tests = Path(__file__).parents[1]
    texts = [file.read_text() for file in table.FOLDER.glob("*/**/*.py")]
    named = {name for text in texts for name in re.findall(r"\btest_\w+\.py", text)}
    assert named
    assert named <= {file.name for file in tests.rglob("test_*.py")}


@pytest.mark.parametrize("union", UNIONS)
def test_each_union_has_a_suite_with_all_its_leaves(union: str) -> None:
    wanted = kinds_of(UNIONS[union])
    held = [suite.kinds for suite in table.suites() if suite.kinds <= wanted]
    assert set().union(*held) == wanted


def test_a_reason_stands_once_below_its_table_and_a_promise_of_every_leaf_has_no_reason() -> None:
    suite: Suite[Any] = Suite("Things", {"a", "b"}, {"a": None, "b": None})
    suite.promise("It works.")
    suite.promise("It has columns.", b="it has no columns")
    suite.promise("They have types.", b="it has no columns")
    assert as_markdown([suite]).splitlines()[2:] == [
        "| promise | a | b |",
        "| --- | --- | --- |",
        "| It works. | test | test |",
        "| It has columns. | test | [1] |",
        "| They have types. | test | [1] |",
        "",
        "1. it has no columns",
    ]
