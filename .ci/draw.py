"""Draw the slow tests and the faults that CI runs for this commit, and leave the others to the night.

    python .ci/draw.py drawn.txt             # then: pytest @drawn.txt
    python .ci/draw.py --write REPORTS       # the seconds of long tests, from the JUnit reports of a whole run

All slow tests and all faults are dealt into `SHARES` shares of about the same seconds. The commit's hash draws one of
them. Beside it run the tests of the files that the newest commits changed, the newest first, for `TOUCHED_SECONDS`.
`seconds.txt` has the seconds of the long tests; every other one counts as `USUAL` seconds.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SECONDS = Path(__file__).with_name("seconds.txt")
MARKED = ("mark.slow", "mark.chaos")
SHARES = 16
LANDING = 30  # commits of the first-parent history, as in mutations.py
LONG, USUAL = 15, 6
TOUCHED_SECONDS = 180


def marked_files(root: Path) -> list[str]:
    """Return the test files that name one of the two marks."""
    files = sorted(root.glob("tests/**/test_*.py"))
    return [str(file.relative_to(root)) for file in files if any(mark in file.read_text() for mark in MARKED)]


def collected() -> list[str]:
    """Return the names of all slow tests and faults. Collection by pytest knows the parameters too."""
    selection = ["-q", "--collect-only", "-m", "(slow or chaos) and not nightly", *marked_files(ROOT)]
    command = [sys.executable, "-m", "pytest", *selection]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"expected that pytest collects the slow tests, found:\n{result.stdout}{result.stderr}")
    return [line for line in result.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def known_seconds() -> dict[str, int]:
    lines = (line.split(" ", 1) for line in SECONDS.read_text().splitlines())
    return {name: int(seconds) for seconds, name in lines}


def deal(tests: list[str], seconds: dict[str, int], shares: int = SHARES) -> list[list[str]]:
    """Deal the longest test first, each to the share with the fewest seconds."""
    dealt: list[list[str]] = [[] for _ in range(shares)]
    sums = [0] * shares
    for test in sorted(tests, key=lambda test: (-seconds.get(test, USUAL), test)):
        shortest = sums.index(min(sums))
        dealt[shortest].append(test)
        sums[shortest] += seconds.get(test, USUAL)
    return dealt


def touched(tests: list[str], changed: list[str], seconds: dict[str, int]) -> list[str]:
    """Return the tests of the changed files, in the order of the files, that fit into `TOUCHED_SECONDS`."""
    chosen: list[str] = []
    total = 0
    for file in dict.fromkeys(changed):
        for test in (test for test in tests if test.partition("::")[0] == file):
            total += seconds.get(test, USUAL)
            if total > TOUCHED_SECONDS:
                return chosen
            chosen.append(test)
    return chosen


def git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def described(tests: list[str]) -> str:
    files = Counter(test.partition("::")[0] for test in tests)
    return "".join(f"\n  {count:3d}  {file}" for file, count in sorted(files.items()))


def main(path: Path) -> None:
    seconds, tests = known_seconds(), collected()
    changed = git("log", "--first-parent", "-m", f"-n{LANDING}", "--name-only", "--format=", "--", "tests")
    share = int(git("rev-parse", "HEAD")[0], 16) % SHARES
    drawn = deal(tests, seconds)[share]
    newest = [test for test in touched(tests, changed, seconds) if test not in drawn]
    chosen = [test for test in tests if test in drawn or test in newest]  # the tests of a file stay together
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{test}\n" for test in chosen))
    remaining = [test for test in tests if test not in chosen]
    print(
        f"Of {len(tests)} slow tests and faults {len(drawn)} run: share {share + 1} of {SHARES}, by the commit's hash"
    )
    print("\n".join(f"  {seconds.get(test, USUAL):3d} s  {test}" for test in drawn))
    print(f"{len(newest)} more run because the newest {LANDING} commits changed their files:{described(newest)}")
    print(f"{len(remaining)} are left to the night (.ci/nightly):{described(remaining)}", flush=True)


def write(reports: Path) -> None:
    lines = []
    for report in (reports / "slow.xml", reports / "chaos.xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            name, elapsed = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}", case.get("time")
            if float(elapsed or 0) >= LONG:
                lines.append(f"{round(float(elapsed or 0))} {name}\n")
    SECONDS.write_text("".join(sorted(lines, key=lambda line: line.split(" ", 1)[1])))


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
