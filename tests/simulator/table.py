"""The table sink x fault of the schedules that were played, on docs/reference/simulated-faults.md.

    python -m tests.simulator.table [--share 25]      # plays the cases of `cases.py`, and writes results and page

Single faults are played whole, also of a share.

`results.json` has the counts. A test renders the page from it, and compares its sinks and faults with those of now.
"""

import argparse
import json
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.simulator.cases import CASES, FOLDER_IN_MEMORY
from tests.simulator.readers import KINDS
from tests.simulator.schedules import FAULTS, SINGLE, schedules
from tests.simulator.simulation import Case, opened

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs/reference/simulated-faults.md"
INTRODUCTION = """# Simulated faults

For readers of Overnight's guarantees. A simulator runs the code of staging, lease, publish, resume, retry, undo and
`clean`. Its storage is in memory, and its clock is simulated. A process can die, fail or be frozen before each
operation of the storage. After each change a reader looks at the partition. After each schedule the job runs again, and
`clean` runs.

`python -m tests.simulator.table` plays the schedules and writes this page.

- **lost**: a row is missing, also of a kept publication; an earlier version is back, or the next run publishes what was
  undone; or the next run cannot publish.
- **doubled**: a reader sees a row twice.
- **torn**: a reader sees rows of two versions, or the receipt differs from the files.
- **left over**: a file stays after `clean` that no receipt names.

On a disk, a reader lists the directory. On an object store, it follows the receipt's `files`: a listing has a window,
see [Files on disk](files.md#what-readers-see-while-a-partition-is-replaced).

## The faults

A and B are two runs, or a run and a retry, an undo or `clean`, at the same partition.
"""
BOUND = """
Of two schedules, only one is played if they differ in the order of operations that do not depend on each other. A death
counts before a change only. Runs A and B are interrupted twice at most, except in drawn schedules.

Tables keep their own logs on a real disk in memory. Each of their commits and statements is an operation. What the
libraries of Delta, Iceberg and Lance do inside a commit is one step here. The sink `sql` is SQLite, and has no undo.
PostgreSQL waits by the clock of its server: `tests/contracts/crash_points` has its deaths and errors.

## The schedules

"""
COSTLY = {"iceberg": 8}  # a schedule takes ten times as long, so a share has fewer of them


def play(case: Case, fault: str, share: int) -> dict[str, Any]:
    """Play the schedules of a case, and return their number and how many found what."""
    with (
        tempfile.TemporaryDirectory(dir=FOLDER_IN_MEMORY, prefix="overnight-simulator-") as folder,
        opened(case, Path(folder)) as simulation,
    ):
        parts = 1
        if share > 1 and fault not in SINGLE:
            parts = share * COSTLY.get(case.kind, 1)
        simulation.play_all(schedules(simulation.play, fault, parts))
        found = Counter(each.fault.kind for each in simulation.found)
        for each in simulation.found:
            print(each, flush=True)
        print(f"{case}: {fault}: {simulation.count}, {simulation.schedules_per_minute:,.0f} a minute", flush=True)
        return {"schedules": simulation.count, **{kind: found[kind] for kind in KINDS}}


def page(results: dict[str, Any]) -> str:
    lines = [f"- **{fault}**: {meaning}" for fault, meaning in FAULTS.items()]
    text = INTRODUCTION + "\n" + "\n".join(lines) + "\n" + BOUND
    if results["share"] > 1:
        text += (
            f"Below are all schedules of a single fault, and a drawn part of the others: one in {results['share']},\n"
            "and of Iceberg an eighth of that. `make nightly` plays all of two faults, a million, in about a day:\n"
            "no night has played them whole yet. It draws 2,000 of three runs for each sink and three programs.\n\n"
        )
    text += (
        "| sink | fault | schedules | " + " | ".join(KINDS) + " |\n| --- | --- |" + " ---: |" * (1 + len(KINDS)) + "\n"
    )
    for name, faults in results["sinks"].items():
        for fault, counts in faults.items():
            numbers = " | ".join(f"{counts[kind]:,}" for kind in ("schedules", *KINDS))
            text += f"| {name} | {fault} | {numbers} |\n"
    return text


def sinks() -> dict[str, list[Case]]:
    """Return the cases by the sink and the store of a line."""
    lines: dict[str, list[Case]] = {}
    for case in CASES:
        store = "object store" if case.store == "memory" else "local disk"
        lines.setdefault(f"`{case.kind}`, {store}", []).append(case)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1)
    share = parser.parse_args().share
    results: dict[str, Any] = {"share": share, "sinks": {}}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:  # Lance cannot be forked
        for name, cases in sinks().items():
            results["sinks"][name] = {}
            for fault in FAULTS:
                results["sinks"][name][fault] = [processes.submit(play, case, fault, share) for case in cases]
        for faults in results["sinks"].values():
            for fault, played in faults.items():
                counts = [each.result() for each in played]
                faults[fault] = {key: sum(each[key] for each in counts) for key in ("schedules", *KINDS)}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
