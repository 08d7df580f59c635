"""How many rows a contender's model has done by when, one file a process, for the steady rate; else it does nothing."""

import os
import time


def note(rows: int) -> None:
    folder = os.environ.get("BENCHMARK_PROGRESS")
    if folder:
        with open(f"{folder}/{os.getpid()}", "a") as file:
            file.write(f"{time.time()} {rows}\n")
