"""Compare Overnight with reference readers, on public corpora, row by row.

    python benchmarks/corpora/compare.py FOLDER [--kind KIND] [--all]

FOLDER holds the corpora. README.md beside this file describes how you get them. A missing corpus is named and skipped.
Another process reads the files, so that a file that kills its reader is counted. Exit status: 1 if a row differs or
Overnight's reader crashed, otherwise 0.
"""

import argparse
import importlib.util
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import csv_files
import images
import json_files
import parquet_files
import pdfs
import shards
import sounds
import texts
from apart import DEEPEST, Apart, Crashed
from judging import CRASH, DIFFERENT, OUTCOMES, Found, judge
from kind import Kind, rows_of

KINDS = (
    *(images.KIND, parquet_files.KIND, parquet_files.BY_DUCKDB, json_files.KIND, json_files.LINES, csv_files.KIND),
    *(pdfs.KIND, sounds.KIND, texts.KIND, shards.KIND),
)
TIMEOUT_SECONDS = 120
README = Path(__file__).with_name("README.md")


def main(arguments: Sequence[str] | None = None, kinds: Sequence[Kind] = KINDS) -> int:
    """Print the results, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the corpora")
    parser.add_argument("--kind", choices=[kind.name for kind in kinds], help="only this kind")
    parser.add_argument("--all", action="store_true", help="list every differing row, not only the reasons")
    given = parser.parse_args(arguments)
    sys.setrecursionlimit(DEEPEST)
    found = {}
    with Apart(TIMEOUT_SECONDS) as process:
        for kind in kinds:
            if given.kind not in (None, kind.name):
                continue
            if not importlib.util.find_spec(kind.reader):
                print(f"{kind.name}: not compared, because {kind.reader} is not installed", file=sys.stderr)
                continue
            found[kind.name] = compare(kind, given.folder, process)
    print(table(found))
    for name, one in found.items():
        print("\n".join(notes(name, one, given.all)))
    return int(any(one.counts[DIFFERENT] or one.counts[CRASH] for one in found.values()))


def compare(kind: Kind, folder: Path, process: Apart) -> Found:
    """Compare the files of a kind below the folder, and return the results."""
    found = Found()
    for path in files(kind, folder):
        found.files += 1
        name = str(path.relative_to(folder))
        try:
            theirs = process.call(rows_of, kind.reference, path)
        except Crashed as crashed:
            theirs = rows_of(_refuse, Path(f"the reference crashed: {crashed}"))
        try:
            mine = process.call(kind.ours, path)
        except Crashed as crashed:
            found.add(name, CRASH, str(crashed))
            continue
        for number, (outcome, reason) in enumerate(judge(mine, theirs, kind.differs)):
            found.add(f"{name}#{number}", outcome, reason)
    return found


def files(kind: Kind, folder: Path) -> list[Path]:
    """Return the files of a kind, and print the missing corpora."""
    places = [folder / corpus for corpus in kind.corpora]
    for place in places:
        if not place.is_dir():
            print(f"{kind.name}: {place} is missing; {README} describes how you get it", file=sys.stderr)
    return sorted({path for place in places for path in place.rglob("*") if path.is_file() and kind.choose(path)})


def table(found: dict[str, Found]) -> str:
    """Return the counts of all kinds as a table in Markdown."""
    lines = [f"| kind | files | rows | {' | '.join(OUTCOMES)} |", "| --- |" + " ---: |" * (2 + len(OUTCOMES))]
    for name, one in found.items():
        counts = [one.files, sum(one.counts.values()), *(one.counts[outcome] for outcome in OUTCOMES)]
        lines.append(f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |")
    return "\n".join(lines)


def notes(name: str, found: Found, is_all: bool) -> list[str]:
    """Return a line for each reason, with its number of rows and an example, or with `is_all` a line for each row."""
    if is_all:
        return ["", f"{name}:", *(f"  {outcome}: {row}: {reason}" for row, outcome, reason in found.notes)]
    alike = Counter((outcome, _kind_of(reason)) for _, outcome, reason in found.notes)
    first = {(outcome, _kind_of(reason)): (row, reason) for row, outcome, reason in reversed(found.notes)}
    lines = [f"  {outcome}, {count:,}: {first[(outcome, about)][1]:.240} ({first[(outcome, about)][0]})"
             for (outcome, about), count in alike.most_common() if outcome != "refused by both"]  # fmt: skip
    return ["", f"{name}:", *lines] if lines else []


def _kind_of(reason: str) -> str:
    """Return the beginning and the end of a reason without its numbers."""
    plain = "".join("0" if letter.isdigit() else letter for letter in reason)
    return plain[:40] + plain[-40:]


def _refuse(path: Path) -> None:
    raise ValueError(str(path))


if __name__ == "__main__":
    sys.exit(main())
