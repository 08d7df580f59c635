"""The page with the walk of a row names functions that are in the files beside them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^\| \d+ \| [^|]+ \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)


def test_each_function_of_the_walk_is_in_its_file() -> None:
    text = (ROOT / "docs/explanations/walk-of-a-row.md").read_text()
    steps = STEP.findall(text)
    assert len(steps) == 20
    missing = [(file, name) for file, name in steps if f"def {name}(" not in (ROOT / file).read_text()]
    assert missing == []
    files = set(re.findall(r"`((?:flows|tasks)/[^`]+\.py)`", text))
    assert [file for file in files if not (ROOT / file).is_file()] == []
