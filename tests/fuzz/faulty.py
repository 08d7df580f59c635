"""Readers with a fault each, which the hunt has to find. They are no part of what is fuzzed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import Sample
from tests.fuzz.targets import READ, Target


def _raise(sample: Sample) -> str:
    """Read all files but those with a byte that few have."""
    if b"\x7f" in sample.content:
        raise KeyError("a key that nobody expected")
    return READ


def _grow(_: Sample) -> str:
    held = bytearray()
    while True:
        held += b"x" * 2**20


RUNS: dict[str, Callable[[Sample], Any]] = {
    "raises": _raise,
    "hangs": lambda _: time.sleep(60),
    "grows": _grow,
    "holds": lambda _: len(b"x" * 40 * 2**20),  # for a moment
    "dies": lambda _: os.abort(),
}
TARGETS: dict[str, Callable[[Path], Target]] = {
    name: lambda _, run=run: Target([Sample("a.txt", b"a text")], run) for name, run in RUNS.items()
}
