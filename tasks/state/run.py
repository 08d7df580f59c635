"""The files of a run, below `<state>/date=D/` (or `<state>/all/`).

A `Run` identifies them. It is small, contains no secret and travels to Ray tasks.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from overnight.tasks.config.partition_names import partition_folder
from overnight.tasks.errors import LedgerCorrupt
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.stores import Stores, in_use

# receipt.json  failure.json  quarantine/*.parquet     contracts, read by others
# failure-quarantine.parquet                           of the newest attempt that failed or was interrupted
# report.html  reports/<generation>.html               the page of the latest run, and of each generation
#              reports/<generation>.json               its verdict, and the agreement with labels
# receipts/<generation>.json                           every receipt so far
# publishing.json                                      the publish under way, see write/publish/publish.py
# drafts/<token>/                                      what the run with this token is about to put here, see fenced.py
# generations/<generation>/generation.json             fingerprint, and commits of hub models; written first
#                          manifest                    Parquet: the inputs, taken once
#                          parts/<attempt>-*.part      Parquet: staged rows, and in the footer their ranges
#                          parts/<attempt>-*.errors    Parquet: quarantine details of the part of that name
#                          duplicates/<number>         Parquet: the rows that a `deduplicate` drops
#                          answers/<model>/*.jsonl     paid answers, see infer/endpoint/response_log.py;
#                                                      <model>.reused/: the tokens of answers of earlier runs
#                          batches/                     requests in batches, see infer/batch/parts.py
#                          logs/<token>.log            output of user code in the run with this token
#                          logs/<token>.incidents.json  the incidents of the run with this token, if it failed
#                          nodes.json                  the nodes alive in the cluster, while an attempt runs
#                          attempts/<attempt>/order    Arrow: the units of this attempt, one record batch per block
#                          attempts/<attempt>/sample   Arrow: a few preprocessed rows, on which models are tried
#                          attempts/<attempt>/timeline JSON: the stages and the load of this attempt over time
FORMAT_VERSION = 1
# The folders of a generation from which a run resumes it, and why `overnight clean` removes what a publish left there.
RESUMED_FROM = {
    "parts": "staged when it was published already",
    "duplicates": "decided for rows that are published now",
    "answers": "kept for rows that are published now",
    "batches": "sent for rows that are published now",
}
REPORT = "report.html"
ATTEMPT = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{6}")  # the name of one
_NUMBERS = re.compile(r"\[\n[-+\d.eE,nul\s]+\]")  # a text in JSON has no line end


@dataclass(frozen=True)
class Run:
    """One attempt at one partition of one job. A timeout of None sets no limit."""

    job: str
    partition: str
    partition_column: str  # several have commas between them, as `date,region`
    state: Location  # the directory of the job's ledgers
    sink: Location  # the directory of its table
    generation: str
    attempt: str
    fingerprint: str  # a hash of the ingredients
    ingredients: dict[str, Any]  # the settings that determine results, and hashes of model files and code
    started_at: str
    commits: Mapping[str, str | None] = field(default_factory=dict)  # of hub models, None if unknown
    token: int = 0  # of the lease on the partition
    flow_run: str = ""  # the id in Prefect
    keep_columns: tuple[str, ...] = ()  # heavy columns that the sink publishes
    limit_rows: int | None = None  # of a sample; None for all rows
    is_forced: bool = False  # no row takes a remembered result
    reason: str = ""  # the user's text for the receipt
    backfill: str = ""  # the id of the backfill that started it
    scheduled_for: str | None = None  # the time that determines the partition
    row_timeout_seconds: float | None = None
    stall_timeout_seconds: float | None = None
    busy_timeout_seconds: float | None = None
    after: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # job -> partition -> generation it follows
    budget: Mapping[str, float] = field(default_factory=dict)  # the limits of the job's `budget` that are set
    stores: Stores = field(default_factory=in_use)  # how the processes of the run reach places in S3

    @property
    def partition_directory(self) -> str:
        """Return the partition's Hive folders, such as `date=2026-11-19`; empty for the partition `all`."""
        return partition_folder(self.partition_column, self.partition)

    @property
    def ledger(self) -> Location:
        return self.state / ledger_name(self.partition_column, self.partition)

    @property
    def target(self) -> Location:
        return self.sink / self.partition_directory if self.partition_directory else self.sink

    @property
    def home(self) -> Location:
        """Return the directory of the run's generation."""
        return self.ledger / "generations" / self.generation

    @property
    def manifest(self) -> Location:
        return self.home / "manifest"

    @property
    def parts(self) -> Location:
        return self.home / "parts"

    @property
    def duplicates(self) -> Location:
        return self.home / "duplicates"

    @property
    def answers(self) -> Location:
        return self.home / "answers"

    @property
    def batches(self) -> Location:
        return self.home / "batches"

    @property
    def log(self) -> Location:
        return self.home / "logs" / f"{self.token}.log"

    @property
    def incidents(self) -> Location:
        return self.home / "logs" / f"{self.token}.incidents.json"

    @property
    def nodes(self) -> Location:
        return self.home / "nodes.json"

    @property
    def failure_quarantine(self) -> Location:
        return self.ledger / "failure-quarantine.parquet"

    @property
    def order(self) -> Location:
        return self.home / "attempts" / self.attempt / "order"

    @property
    def sample(self) -> Location:
        return self.home / "attempts" / self.attempt / "sample"

    @property
    def timeline(self) -> Location:
        return self.home / "attempts" / self.attempt / "timeline"

    @property
    def ends_at(self) -> float | None:
        """Return the moment at which the run has taken its `budget.minutes`, in seconds since 1970; None: no limit."""
        minutes = self.budget.get("minutes")
        return datetime.fromisoformat(self.started_at).timestamp() + 60 * minutes if minutes else None

    def receipts_of(self, ledgers: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the newest receipts of the job's partitions that have these ledgers.

        Yield none for a sample, because its rows may differ from the rest.
        """
        for name in () if self.limit_rows else ledgers:
            receipt = read_json(self.state / name / "receipt.json")
            if receipt and receipt["job"] == self.job:
                yield receipt

    def as_new_attempt(self) -> "Run":
        """Return the same run under the name of a new attempt, which no staged part has yet."""
        return replace(self, attempt=new_attempt())


def ledger_name(columns: str, partition: str) -> str:
    """Return the name of a partition's directory in the state: `all`, `date=2026-11-19`, `date,hour=2026-11-19T05`."""
    return "all" if partition == "all" else f"{columns}={partition}"


def new_attempt() -> str:
    """Return a new attempt's name, such as `20261119T020000-1a2b3c`. Names sort by time: the older part keeps a row."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"


def read_json(location: Location) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it does not exist. Raise `LedgerCorrupt` for other content."""
    try:
        return parse_json(location.read_bytes(), location)
    except FileNotFoundError:
        return None


def parse_json(content: bytes, location: Location) -> dict[str, Any]:
    """Return the JSON object in the `content` of the file at `location`. Raise `LedgerCorrupt` for other content."""
    try:
        record = json.loads(content)
        if isinstance(record, dict):
            return record
        problem = f"a {type(record).__name__}"
    except ValueError as error:
        problem = f"{len(content):,} bytes that are not JSON: {error}"
    raise LedgerCorrupt(
        f"{location}: expected a JSON object, found {problem}. Overnight writes its files whole or not at all, so "
        "something else wrote this one. Restore a whole copy, or remove the file: its partition then counts as if it "
        "never existed."
    )


def write_json(location: Location, content: dict[str, Any]) -> None:
    location.write_bytes(json_bytes(content))


def json_bytes(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, indent=2, sort_keys=False)
    in_lines = _NUMBERS.sub(lambda match: " ".join(match.group().split()), text)  # a list of numbers takes one line
    return in_lines.encode() + b"\n"


def published_files(receipt: dict[str, Any] | None) -> list[str]:
    """Return the files of a receipt, as paths below the sink; an empty list without a receipt."""
    return list(receipt["files"]) if receipt else []


def unfinished_generation(ledger: Location, fingerprint: str) -> str | None:
    """Return the newest generation with this fingerprint, unless it or a newer one that continues another is published.

    So a run resumes it. An undo of rows with the fingerprint, which is newer, ends it, too.
    """
    generations = ledger / "generations"
    for name in reversed(generations.names()):
        record = read_json(generations / name / "generation.json")
        if record is None:
            undo = (read_json(ledger / "receipts" / f"{name}.json") or {}).get("undo")
            if undo and undo["undone"]["fingerprint"] == fingerprint:
                return None
            continue
        is_mine = record["fingerprint"] == fingerprint and record["format_version"] == FORMAT_VERSION
        is_mine = is_mine and "retries" not in record  # of an earlier version, without all that a publish needs
        if not is_mine and is_of_all_rows(record):
            continue
        if (ledger / "receipts" / f"{name}.json").exists():
            return None
        if is_mine:
            return name
    return None


def is_of_all_rows(record: Mapping[str, Any]) -> bool:
    """Return False for the record of a generation that continues a published one, and keeps rows of it."""
    return not {"continues", "retries"} & record.keys()  # earlier versions wrote `retries`


def resumable_generations(ledger: Location, fingerprint: str, published: str) -> set[str]:
    """Return the generations that the next run would resume: of all rows, and one that continues `published`."""
    names = {unfinished_generation(ledger, fingerprint)}
    generations = ledger / "generations"
    for name in reversed(generations.names()):
        record = read_json(generations / name / "generation.json") or {}
        if (record.get("continues"), record.get("current")) == (published, fingerprint):
            names.add(name)
            break
    return {name for name in names if name}


def timeline_of(run: Run) -> dict[str, Any]:
    """Return `started_at`, `stages` and `samples` of the run's last attempt, and `incidents`, as in a receipt.

    The result has what a run without a receipt left: nothing before its stream began, or before an incident.
    """
    incidents = read_json(run.incidents) or {}
    for attempt in reversed((run.home / "attempts").names()):
        if attempt < run.attempt:  # of an earlier run
            break
        if timeline := read_json(replace(run, attempt=attempt).timeline):
            return {**timeline, **incidents}
    return incidents


def changed_commits(record: Mapping[str, Any], run: Run) -> list[str]:
    """Return the hub models whose commits differ between `run` and an earlier run. An unknown commit is equal."""
    earlier = record.get("commits") or {}
    return [name for name, commit in run.commits.items() if commit and earlier.get(name) not in (None, commit)]


def now() -> str:
    """Return the current time in the format of receipts: UTC, ISO 8601, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
