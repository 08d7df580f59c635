"""The share of the slow tests and the faults that CI draws: each of them is in one share, and none is never run."""

import re
import runpy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
draw = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci/draw.py")))
MARK = re.compile(r"mark\.(slow|chaos|nightly)\b")


@given(st.dictionaries(st.text("ab/:[]", min_size=1), st.integers(0, 300), min_size=draw.SHARES), st.data())
def test_each_test_is_in_one_share_and_no_share_is_empty(seconds: dict[str, int], data: st.DataObject) -> None:
    tests = data.draw(st.permutations(list(seconds)))
    shares = draw.deal(tests, {name: count for name, count in seconds.items() if count > draw.USUAL})
    assert len(shares) == draw.SHARES
    assert all(shares)
    assert Counter(test for share in shares for test in share) == Counter(tests)
    assert shares == draw.deal(sorted(tests), {name: count for name, count in seconds.items() if count > draw.USUAL})


def test_shares_of_the_long_tests_take_about_the_same_time() -> None:
    seconds = draw.known_seconds()
    sums = [sum(seconds[test] for test in share) for share in draw.deal(list(seconds), seconds)]
    assert max(sums) < 1.15 * sum(sums) / draw.SHARES


def test_every_file_with_slow_tests_or_faults_is_drawn_from_and_each_long_test_is_still_there() -> None:
    """A mark stands in a test file, because the targets of make find the files by it."""
    files = {str(file.relative_to(ROOT)): file.read_text() for file in ROOT.glob("tests/**/*.py")}
    marked = {name for name, text in files.items() if MARK.search(text)}
    assert [name for name in marked if not Path(name).name.startswith("test_")] == []
    only_nightly = {name for name in marked if set(MARK.findall(files[name])) == {"nightly"}}
    assert set(draw.marked_files(ROOT)) == marked - only_nightly
    for test in draw.known_seconds():
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in files.get(file, ""), f"{test}: .ci/draw.py --write, after make slow"


def test_tests_of_changed_files_run_until_their_time_is_up_the_newest_first() -> None:
    tests = ["tests/test_a.py::one", "tests/test_a.py::two", "tests/test_b.py::one", "tests/test_c.py::one"]
    seconds = dict.fromkeys(tests, draw.TOUCHED_SECONDS // 2)
    changed = ["tests/test_b.py", "tests/conftest.py", "tests/test_a.py", "tests/test_b.py"]
    assert draw.touched(tests, changed, seconds) == ["tests/test_b.py::one", "tests/test_a.py::one"]
    assert draw.touched(tests, changed, {}) == ["tests/test_b.py::one", *tests[:2]]
