"""Run a bomb, which unpacks to 1,000 times its size or more, in a process of its own, and measure the process's memory.

A bomb is a generator function in a test module. It first does the same with small data, and yields None: what the
process holds then does not count. It then yields what came of the bomb, as JSON values.
"""

import importlib
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.child import forget_peak, peak_bytes

MOST_BYTES = 2**30
SECONDS = 300


def defused(bomb: Any, *arguments: str, most_bytes: int = MOST_BYTES) -> Any:
    """Return what `bomb` yields. Fail if its process took more than `most_bytes` for it, or died."""
    command = [sys.executable, "-m", "tests.bombs", f"{bomb.__module__}:{bomb.__name__}", *arguments]
    root = Path(__file__).parents[1]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    outcome = json.loads(process.stdout.splitlines()[-1])
    assert outcome["bytes"] < most_bytes, f"{outcome['bytes'] / 2**20:,.0f} MiB"
    return outcome["yielded"]


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, name = sys.argv[1].split(":")
    bomb = getattr(importlib.import_module(module), name)(*sys.argv[2:])
    next(bomb)
    forget_peak()
    before = peak_bytes()
    yielded = next(bomb)
    sys.stdout.write(json.dumps({"bytes": peak_bytes() - before, "yielded": yielded}) + "\n")


if __name__ == "__main__":
    main()
