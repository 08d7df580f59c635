"""Print the slowest tests, and the number and seconds of each JUnit report's tests: `slowest.py FOLDER`."""

import sys
from pathlib import Path
from xml.etree import ElementTree

SHOWN = 20


def main(folder: Path) -> None:
    found = []
    for report in sorted(folder.glob("*.xml")):
        cases = list(ElementTree.parse(report).iter("testcase"))
        seconds = [float(case.get("time") or 0) for case in cases]
        skipped = sum(case.find("skipped") is not None for case in cases)
        print(f"{report.stem}: {len(cases)} tests, {skipped} of them skipped, {sum(seconds):.0f} s one after another")
        names = [f"{case.get('classname')}::{case.get('name')}" for case in cases]
        found += zip(seconds, names, strict=True)
    print(f"The {SHOWN} slowest tests:")
    for time, name in sorted(found, reverse=True)[:SHOWN]:
        print(f"{time:7.1f} s  {name}")


main(Path(sys.argv[1]))
