"""Gather what the page of a run shows, and keep the page: from its receipt, the ledger and the published rows.

The rows are read once, and only as far as the bounds in `row_sample.py`. A run that failed, or that a user cancelled,
has no receipt: its record is that of `failure.json`, and the page shows the work that its next run takes over.
"""

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import yaml

from overnight.flows.job.model import Job
from overnight.flows.ledger import published_rows
from overnight.flows.report import past
from overnight.flows.report.columns import Column, bins_of, compare_columns
from overnight.flows.report.gallery import Card, Gallery, Group
from overnight.flows.report.row_sample import LENGTHS, RowSample, bin_edges, light_tables, roles_of
from overnight.flows.report.spending import Use, uses_of
from overnight.flows.report.timeline import Timeline, arrange
from overnight.flows.report.verdict import UNREAD, Check, Verdict, judge, list_checks
from overnight.flows.runs.run import run_option
from overnight.tasks.artifacts import dispensable
from overnight.tasks.config.masking import masked, masked_in
from overnight.tasks.state import lease
from overnight.tasks.state.run import REPORT, Run, read_json, timeline_of, write_json
from overnight.tasks.write.kinds import Checks, UnreadableKind

ROWS_A_GROUP = 12
REASONS, MOST_QUARANTINED = 12, 100_000  # at most
Record = Mapping[str, Any]
T = TypeVar("T")


@dataclass
class Report:
    """All that the page shows of one run."""

    record: dict[str, Any]  # the receipt, or the record of a run that did not publish
    earlier: list[dict[str, Any]]  # receipts, the newest first
    checks: list[Check]
    timeline: Timeline
    columns: list[Column]
    uses: list[Use]
    has_published: bool  # this run, or an earlier run of the partition
    settings: str  # YAML
    commands: list[tuple[str, str]]
    sample: RowSample = field(default_factory=RowSample)
    sample_before: RowSample = field(default_factory=RowSample)
    groups: list[Group] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what the page lacks, and why
    reasons: list[tuple[past.Reason, list[Card]]] = field(default_factory=list)
    more_reasons: int = 0

    @property
    def is_published(self) -> bool:
        return self.record.get("status") == "published"

    @property
    def previous(self) -> dict[str, Any]:
        return next(iter(self.earlier), {})

    @property
    def verdict(self) -> Verdict:
        agreement = self.sample.agreement, self.sample_before.agreement
        lacks = {problem.partition(":")[0] for problem in self.problems}
        most_frequent = self.sample.most_frequent
        return judge(self.record, self.checks, self.columns, self.has_published, agreement, lacks, most_frequent)


def read_report(job: Job, record: Record, file: str = "JOB.yaml") -> Report:
    """Return the report of a run. `record` is its receipt, or what `failure.json` has. `file` is the job file."""
    is_published = record.get("status") == "published"
    record = dict(record) if is_published else past.with_work(job, record)
    problems: list[str] = []

    def part(name: str, default: T, read: Callable[..., T], *arguments: Any) -> T:
        """Return a part of the page, or the default if it cannot be made: the page then has the other parts."""
        try:
            return read(*arguments)
        except UnreadableKind as error:
            problems.append(f"{UNREAD}: {error}")
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
        return default

    earlier: list[dict[str, Any]] = part("earlier receipts", [], past.earlier_receipts, job, record)
    checks = _checks_of(job, record)
    settings = masked_in(record.get("settings") or job.settings())
    report = Report(
        record,
        earlier,
        part("checks", [], list_checks, record, checks),
        part("timeline", Timeline(None, 0.0), arrange, record, past.attempt_names(job, record)),
        part("columns", [], compare_columns, record, earlier, checks),
        part("use and cost", [], uses_of, job, record),
        past.has_published(job, record),
        yaml.safe_dump(settings, sort_keys=False, allow_unicode=True),
        _commands(record, file),
        problems=problems,
    )
    gallery = Gallery(job, roles_of(record.get("columns") or {}))
    if is_published:
        edges: dict[str, np.ndarray] = part("histograms", {}, _bins, report)
        part("rows", None, _add_rows, report, gallery, edges)
        part("rows of the earlier partition", None, _add_rows_before, report, gallery, edges)
        part("histograms", None, _add_histograms, report, edges)
    part("quarantine", None, _add_quarantine, report, gallery)
    return report


def keep_report(job: Job, run: Run, record: Record, file: str) -> Report | None:
    """Write the page of a run beside its receipt, as the newest and as that of its generation, and return its report.

    It never fails a run: without a page, it returns None.
    """
    from overnight.flows.report.page import render

    with dispensable("the run has no report"):
        lease.check(run.ledger, run.token)
        receipt = read_json(run.ledger / "receipt.json") or {}
        if receipt.get("generation") == run.generation:
            record = receipt  # a run that ends early after its publish has published
        if record["status"] != "published":
            record = {**timeline_of(run), **record, "limit_rows": run.limit_rows}
        report = read_report(job, record, file)
        page = render(report).encode(errors="replace")  # a receipt may hold half a character
        for name in (f"reports/{run.generation}.html", REPORT):
            (run.ledger / name).write_bytes(page)
        write_json(run.ledger / facts_file(run.generation), facts_of(report))  # last: it names the attempt of the page
        return report
    return None


def facts_of(report: Report) -> dict[str, Any]:
    """Return what a page of many runs shows of this one and no receipt has: the verdict, and the agreement."""
    verdict, sample = report.verdict, report.sample
    return {
        "verdict": verdict.level,
        "sentence": masked(verdict.sentence),
        "agreement": sample.agreement,
        "rows_with_label": sample.pairs.total(),
        "attempt": report.record.get("attempt"),
    }


def facts_file(generation: str) -> str:
    return f"reports/{generation}.json"


def _checks_of(job: Job, record: Record) -> Checks:
    """Return the checks of the run, or those of the job if the receipt has none that this version can read."""
    try:
        return Checks.model_validate(record["settings"]["checks"])
    except (KeyError, ValueError):
        return job.checks


def _bins(report: Report) -> dict[str, np.ndarray]:
    """Return the edges of the bins of each column with a histogram."""
    before = report.previous.get("columns") or {}
    edges = {}
    for name, record in (report.record.get("columns") or {}).items():
        bins = bin_edges(record, before.get(name) or {})
        if bins is not None:
            edges[name] = bins
    return edges


def _add_rows(report: Report, gallery: Gallery, edges: Mapping[str, np.ndarray]) -> None:
    """Read the published rows once, and make the cards of those to look at."""
    job, receipt, roles = gallery.job, report.record, gallery.roles
    classes = list(((receipt.get("columns") or {}).get(roles.prediction) or {}).get("classes") or ())
    seed = int(hashlib.sha256(str(receipt["generation"]).encode()).hexdigest()[:8], 16)
    sample = RowSample(roles, edges, classes, ROWS_A_GROUP, seed)
    sample.read(light_tables(lambda names: published_rows.batches(job, receipt, names)))
    report.sample = sample
    for title, rows in sample.groups().items():
        report.groups.append(gallery.group(title, published_rows.with_images(rows, job, receipt)))


def _add_rows_before(report: Report, gallery: Gallery, edges: Mapping[str, np.ndarray]) -> None:
    """Count the rows of the previous partition in the same bins. A column of texts then may be one of numbers now."""
    columns, roles = report.previous.get("columns") or {}, gallery.roles
    comparable = {}
    for name, bins in edges.items():
        if name in columns and (columns[name].get("mean") is None) == (bins is LENGTHS):
            comparable[name] = bins
    names = [*comparable, *({roles.truth, roles.prediction} & columns.keys() - comparable.keys())]
    if names:
        sample = RowSample(roles, comparable)
        sample.read(published_rows.batches(gallery.job, report.previous, names))
        report.sample_before = sample


def _add_histograms(report: Report, edges: Mapping[str, np.ndarray]) -> None:
    for column in report.columns:
        counts = report.sample.histograms.get(column.name)
        if counts is not None:
            before = report.sample_before.histograms.get(column.name)
            column.bins = bins_of(edges[column.name], counts, before)


def _add_quarantine(report: Report, gallery: Gallery) -> None:
    rows = past.quarantined_rows(gallery.job, report.record)
    if len(rows) > MOST_QUARANTINED:
        report.problems.append(f"quarantine: the first {MOST_QUARANTINED:,} of {len(rows):,} rows are counted")
    reasons = past.group_reasons(rows.slice(0, MOST_QUARANTINED).to_pylist())
    report.more_reasons = max(len(reasons) - REASONS, 0)
    for reason in reasons[:REASONS]:
        report.reasons.append((reason, [gallery.failed_row(row) for row in reason.rows]))


def _commands(record: Record, file: str) -> list[tuple[str, str]]:
    """Return what a user may type next, each with its purpose."""
    run, show = (f"overnight {verb} {shlex.quote(file)}{run_option(record['partition'])}" for verb in ("run", "show"))
    failed_rows = ("Look at the rows that failed", f"{show} --quarantine")
    if record.get("status") != "published":
        commands = [("Resume: settled rows are not computed again", run), ("Begin again", f"{run} --force")]
        return [*commands, failed_rows] if record.get("quarantine") else commands
    commands = [("Run it again", f"{run} --force"), ("Show rows", f"{show} -n 5")]
    commands.append(("Show one row", f"{show} --where \"row_id = '...'\""))
    if record.get("rows_quarantined"):
        commands += [failed_rows, ("Run only these again, after a fix", f"{run} --retry-quarantined")]
    return commands
