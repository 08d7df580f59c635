"""The files of a run, below `<state>/date=D/` (or `<state>/all/`).

receipt.json  failure.json  quarantine/*.parquet     contracts, read by others
    failure-quarantine.parquet                           the quarantine of the attempt that failure.json describes
    receipts/<generation>.json                           every receipt so far
    generations/<generation>/generation.json             fingerprint of the settings and models; written first
                             manifest                    Parquet: the inputs, taken once
                             parts/<attempt>-*.part      Parquet: staged rows, and in the footer their ranges
                             parts/<attempt>-*.errors    Parquet: quarantine details of the part of that name
                             answers/<model>/*.jsonl     paid answers, see infer/chat/response_log.py
                             logs/<token>.log            output of user code in the run of that lease
                             attempts/<attempt>/order    Arrow: the units of this attempt, one record batch per block
                             attempts/<attempt>/sample   Arrow: a few preprocessed rows, on which models are tried

A `Run` identifies them. It is small, contains no secret and travels to Ray tasks.
"""

import json
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from overnight.tasks.errors import LedgerCorrupt
from overnight.tasks.storage.location import Location

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Run:
    """One attempt at one partition of one job.

    `fingerprint` is a hash of `ingredients`: the inputs that determine results.
    """

    job: str
    partition: str
    partition_column: str
    state: Location
    sink: Location
    generation: str
    attempt: str
    fingerprint: str
    ingredients: dict[str, Any]
    started_at: str
    token: int = 0  # of the lease on the partition
    flow_run: str = ""  # the id in Prefect
    limit_rows: int | None = None
    reason: str = ""
    backfill: str = ""  # the id of the backfill that started it
    scheduled_for: str | None = None  # the time that determines the partition
    row_timeout_seconds: float | None = None
    stall_timeout_seconds: float | None = None

    @property
    def partition_directory(self) -> str:
        """Return `date=2026-11-19`, or an empty string for the partition `all`."""
        return partition_directory(self.partition_column, self.partition)

    @property
    def ledger(self) -> Location:
        """Return `<state>/date=D` or `<state>/all`."""
        return self.state / (self.partition_directory or "all")

    @property
    def target(self) -> Location:
        """Return the directory in which readers find the published rows."""
        return self.sink / self.partition_directory if self.partition_directory else self.sink

    @property
    def home(self) -> Location:
        return self.ledger / "generations" / self.generation

    @property
    def manifest(self) -> Location:
        return self.home / "manifest"

    @property
    def parts(self) -> Location:
        return self.home / "parts"

    @property
    def answers(self) -> Location:
        return self.home / "answers"

    @property
    def log(self) -> Location:
        """Return the file for the output of user code in all attempts of the run."""
        return self.home / "logs" / f"{self.token}.log"

    @property
    def failure_quarantine(self) -> Location:
        return self.ledger / "failure-quarantine.parquet"

    @property
    def order(self) -> Location:
        return self.home / "attempts" / self.attempt / "order"

    @property
    def sample(self) -> Location:
        return self.home / "attempts" / self.attempt / "sample"

    def as_new_attempt(self) -> "Run":
        """Return the same run with a new attempt's name, which no staged part has yet."""
        return replace(self, attempt=new_attempt())


def partition_directory(column: str, partition: str) -> str:
    """Return the directory of a partition in its sink and in its state, or an empty string for the partition `all`."""
    return "" if partition == "all" else f"{column}={partition}"


def new_attempt() -> str:
    """Return a name that sorts by time: if staged parts overlap, those of the older attempt win."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"


def read_json(location: Location) -> dict[str, Any] | None:
    """Return a JSON object, or None if the file does not exist. Raise `LedgerCorrupt`."""
    try:
        return parse_json(location.read_bytes(), location)
    except FileNotFoundError:
        return None


def parse_json(content: bytes, location: Location) -> dict[str, Any]:
    """Return the JSON object in a file of the run directory. Raise `LedgerCorrupt` if it contains something else."""
    try:
        found = json.loads(content)
        if isinstance(found, dict):
            return found
        problem = f"a {type(found).__name__}"
    except ValueError as error:
        problem = f"{len(content):,} bytes that are not JSON: {error}"
    raise LedgerCorrupt(
        f"{location}: expected a JSON object, found {problem}. Overnight writes its files whole or not at all, so "
        "something else wrote this one. Restore a whole copy, or remove the file: its partition then counts as if it "
        "never existed."
    )


def write_json(location: Location, content: dict[str, Any]) -> None:
    location.write_bytes(json.dumps(content, indent=2, sort_keys=False).encode() + b"\n")


def published_files(receipt: dict[str, Any] | None) -> list[str]:
    """Return the files of a receipt, as paths below the sink; an empty list without a receipt."""
    return list(receipt["files"]) if receipt else []


def unfinished_generation(ledger: Location, fingerprint: str) -> str | None:
    """Return the newest generation of these settings if it is unpublished, otherwise None."""
    generations = ledger / "generations"
    for name in reversed(generations.names()):
        record = read_json(generations / name / "generation.json")
        if record is None:
            continue
        if record["fingerprint"] == fingerprint and record["format_version"] == FORMAT_VERSION:
            published = (ledger / "receipts" / f"{name}.json").exists()
            return None if published else name
    return None


def now() -> str:
    """Return the time in the format of receipts: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
