"""The process in which files are read: it says which one it is at, so that one that kills it is known.

It reads orders from its standard input, each a line of JSON: `{"target": ..., "seed": 0, "first": 0, "count": 500}`.
Without a count it runs the files that were faults once. It writes a line of JSON for each file that it begins, and for
each outcome.
"""

import faulthandler
import json
import os
import re
import resource
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz import faulty
from tests.fuzz.mutations import Sample, damaged
from tests.fuzz.targets import Target, found_before, makers

MOST_ADDRESSES = 16 * 2**30  # bytes; a machine refuses more, too


@cache
def _made(name: str) -> Target:
    made = faulty.TARGETS.get(name) or makers()[name]
    return made(Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-")))


def drawn(order: dict[str, Any]) -> Iterator[tuple[int, Sample]]:
    """Yield the files of an order, each with its number."""
    name = order["target"]
    if "count" not in order:
        yield from enumerate(found_before(name))
        return
    target = _made(name)
    samples = [*target.samples, *found_before(name)]
    for number in range(order["first"], order["first"] + order["count"]):
        yield number, damaged(samples, f"{order['seed']} {name}", number, target.keeps_length)


def peak_bytes() -> int:
    """The most memory that this process held since `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found.group(1)) * 1024 if found else 0


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # https://man7.org/linux/man-pages/man5/proc.5.html


def main() -> None:
    faulthandler.enable()  # the parent ends what hangs with SIGABRT
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # what a library prints is no answer
        for line in sys.stdin:
            order = json.loads(line)
            target = _made(order["target"])
            for number, sample in drawn(order):
                forget_peak()
                before = peak_bytes()
                answers.write(f'{{"at": {number}, "held": {before}}}\n')
                try:
                    outcome: dict[str, Any] = {"outcome": target.run(sample)}
                except BaseException:  # a panic in Rust is no Exception
                    outcome = {"fault": traceback.format_exc()}
                answers.write(json.dumps({"done": number, "bytes": peak_bytes() - before, **outcome}) + "\n")
            answers.write('{"end": true}\n')


if __name__ == "__main__":
    main()
