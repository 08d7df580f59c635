"""Readers with a fault each, which the hunt has to find. They are no part of what is fuzzed."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.mutations import Sample
from tests.fuzz.targets import READ, Target

SAMPLES = (Sample("a.txt", b"a text"),)


def _raise(sample: Sample) -> str:
    """Read all files but those with a byte that few have."""
    if b"\x7f" in sample.content:
        raise KeyError("a key that nobody expected")
    return READ


def _hang(_: Sample) -> str:
    time.sleep(60)
    return READ


def _grow(_: Sample) -> str:
    held = bytearray()
    while True:
        held += b"x" * 2**20


def _hold(_: Sample) -> str:
    """Hold more than a file may, for a moment."""
    return READ if bytearray(b"x" * 20 * 2**20) else ""


def _die(_: Sample) -> str:
    os.abort()


RUNS = {"raises": _raise, "hangs": _hang, "grows": _grow, "holds": _hold, "dies": _die}
TARGETS: dict[str, Callable[[Path], Target]] = {
    name: lambda _, run=run: Target(SAMPLES, run) for name, run in RUNS.items()
}
