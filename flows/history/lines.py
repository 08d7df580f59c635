"""Read the history of a job from its state folder alone: one line for each partition that ever ran.

The job file is not read. A job with the single partition `all` has a line for each of its publishes.
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from overnight.flows.ledger.partition_status import PartitionStatus, entry_of
from overnight.flows.ledger.reader import PartitionLedger, read_files
from overnight.flows.report.report import facts_file
from overnight.flows.report.spending import cost_of_1000
from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.state.run import REPORT, parse_json
from overnight.tasks.storage.location import Location

DIRECTORY = re.compile(r"([^=/]+)=([^=/]+)")  # of a partition in the state: its columns, and its name
COUNTS = ("rows_in", "rows_out", "rows_filtered", "rows_quarantined", "seconds", "generation")
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Remark:
    """A regression, or what changed. Its kind is a word or two."""

    kind: str
    text: str

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "text": self.text}

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass
class Line:
    """A partition, or one publish of the partition `all`. `report` is the path of its page below the state."""

    entry: PartitionStatus
    attempts: int
    fingerprint: str = ""  # of the generation that failed or runs
    report: str = ""
    facts: Record = field(default_factory=dict)  # what its report found
    drift: list[str] = field(default_factory=list)  # columns
    regressions: list[Remark] = field(default_factory=list)
    changes: list[Remark] = field(default_factory=list)  # since the publish before

    @property
    def receipt(self) -> Record:
        return self.entry.receipt or {}

    @property
    def quarantined(self) -> float | None:
        """Return the share of the source rows that are quarantined."""
        rows = self.receipt.get("rows_in")
        return self.receipt.get("rows_quarantined", 0) / rows if rows else None

    @property
    def rate(self) -> float | None:
        """Return the rows per second while the stream ran, without the start if the receipt has it."""
        steady = (self.receipt.get("performance") or {}).get("rows_per_second_streaming")
        return steady or self.receipt.get("rows_per_second") or None

    @cached_property
    def cost(self) -> float | None:
        return cost_of_1000(self.receipt)

    @property
    def agreement(self) -> float | None:
        """Return the share of rows whose prediction equals their label."""
        return self.facts.get("agreement")

    def as_json(self) -> dict[str, Any]:
        """Return the line as `--json` prints it. What is unknown is null."""
        return {
            **{"partition": self.entry.partition, "status": self.entry.status, "why": list(self.entry.why)},
            "published_at": self.receipt.get("finished_at"),
            **{name: self.receipt.get(name) for name in COUNTS},
            **{"rows_per_second": self.rate, "cost_per_1000_rows": self.cost, "quarantined": self.quarantined},
            **{"agreement": self.agreement, "drift": self.drift, "attempts": self.attempts},
            "regressions": [remark.as_json() for remark in self.regressions],
            "changes": [remark.as_json() for remark in self.changes],
        }


def directories_of(names: Collection[str]) -> dict[str, str]:
    """Return the partitions among the names of a state's directories, sorted, with the name of each."""
    directories = {}
    for name in names:
        if name == "all":
            directories[name] = name
        elif match := DIRECTORY.fullmatch(name):
            with contextlib.suppress(ValueError):  # such as 2026-02-30
                partition_values(match[1], match[2])
                directories[match[2]] = name
    return dict(sorted(directories.items()))


def read_lines(state: Location, directories: Mapping[str, str], job: str = "") -> tuple[str, list[Line]]:
    """Return the job's name, which is that of the newest record if it is not given, and a line for each partition."""
    ledgers = read_files(state, set(directories.values()))
    job = job or _job_of(map(ledgers.get, directories.values()))
    lines = []
    for partition, name in directories.items():
        if name not in ledgers:
            continue
        if partition == "all":
            lines += _earlier(state / name, job, ledgers[name])
        lines.append(_line(entry_of(partition, job, ledgers[name]), ledgers[name], REPORT))
    _add_facts(state, directories, lines)
    return job, lines


def _job_of(ledgers: Iterable[PartitionLedger | None]) -> str:
    """Return the job of the last ledger with a receipt or a failure, or an empty text without one."""
    job = ""
    for ledger in ledgers:
        record = ledger and (ledger.failure or ledger.receipt)
        if record:
            job = str(record["job"])
    return job


def _line(entry: PartitionStatus, ledger: PartitionLedger, report: str) -> Line:
    record = entry.receipt or {}
    generation = record.get("generation")
    if entry.status != "published":
        generation = (entry.failure or {}).get("generation") or ledger.newest_generation
    prefix = f"generations/{generation}/attempts/"
    attempts = {path[len(prefix) :].partition("/")[0] for path in ledger.files if path.startswith(prefix)}
    fingerprint = str((ledger.unpublished or {}).get("fingerprint", ""))
    return Line(
        entry,
        max(len(attempts), int(bool(entry.receipt or entry.failure))),
        fingerprint,
        report if report in ledger.files else "",
    )


def _earlier(records: Location, job: str, ledger: PartitionLedger) -> list[Line]:
    """Return a line for each publish before the newest one."""
    newest = f"receipts/{(ledger.receipt or {}).get('generation')}.json"
    paths = sorted(path for path in ledger.files if path.startswith("receipts/") and path != newest)
    lines = []
    for path, content in records.read_each(paths).items():
        receipt = parse_json(content, records / path)
        if receipt["job"] == job:
            entry = PartitionStatus("all", "published", (), receipt)
            lines.append(_line(entry, ledger, f"reports/{receipt['generation']}.html"))
    return lines


def _add_facts(state: Location, directories: Mapping[str, str], lines: list[Line]) -> None:
    """Read what the report of each receipt found. A run of an earlier version left none."""
    paths = {}
    for line in lines:
        if line.receipt:
            name = directories[line.entry.partition]
            paths[f"{name}/{facts_file(line.receipt['generation'])}"] = line
    for path, content in state.read_each(list(paths)).items():
        paths[path].facts = parse_json(content, state / path)
