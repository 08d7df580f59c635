"""Read the history of a job: its lines, each with its regressions and with what changed since the publish before."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from overnight.flows.history.changes import changes_between
from overnight.flows.history.lines import Line, Remark, directories_of, read_lines
from overnight.flows.history.regressions import find_drift, regressions
from overnight.flows.report.past import COMPARED
from overnight.tasks.storage.location import Location

UNCHANGED = Remark("nothing", "settings, models, code and versions are the same, and the inputs are of a like size")
OTHER_FINGERPRINT = Remark("fingerprint", "settings, models or code are others than those of the publish before")


@dataclass
class History:
    """The lines of a job, the oldest first. `problem` is why they cannot be read.

    `place` is the state as pages show it: a path below the folder of a site.
    """

    job: str
    state: Location
    lines: Sequence[Line]
    directories: dict[str, str]  # of all partitions, in the state
    problem: str = ""
    place: str = ""


def read_history(state: Location, job: str = "", first: str = "", last: str = "", newest: int | None = None) -> History:
    """Return the history of the job whose state this is: all of it, from a day to a day, or the newest lines."""
    directories = directories_of(state.names())
    partitions = [partition for partition in directories if not last or partition <= last]
    begin = bisect_left(partitions, first)
    if newest:
        begin = max(begin, len(partitions) - newest)
    window = partitions[max(begin - COMPARED, 0) :] if begin < len(partitions) else []
    job, lines = read_lines(state, {partition: directories[partition] for partition in window}, job)
    _compare(lines)
    if begin < len(partitions):
        lines = [line for line in lines if line.entry.partition >= partitions[begin]]
    return History(job or state.parent.name, state, lines[-newest if newest else None :], directories, place=str(state))


def _compare(lines: Sequence[Line]) -> None:
    past: list[Line] = []  # published, the newest first
    for line in lines:
        if past and line.receipt:
            drift = find_drift(line, past[0])
            line.drift = list(drift)
            line.regressions = [*regressions(line, past[:COMPARED]), *chain.from_iterable(drift.values())]
            line.changes = changes_between(past[0].receipt, line.receipt)
            if line.regressions and not line.changes:
                line.changes = [UNCHANGED]
        elif past and line.fingerprint not in ("", past[0].receipt.get("fingerprint")):
            line.changes = [OTHER_FINGERPRINT]
        if line.receipt:
            past.insert(0, line)
