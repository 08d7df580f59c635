"""Gather what the page of a run shows, and keep the page: from its receipt, the ledger and the published rows.

The rows are read once, and only as far as the bounds in `row_sample.py`. A run that failed, or that a user cancelled,
has no receipt: its record is that of `failure.json`, and the page shows the work that its next run takes over.
"""

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import yaml

from overnight.flows.job.model import Job
from overnight.flows.ledger import published_rows
from overnight.flows.report import past
from overnight.flows.report.columns import Column, bins_of, compare_columns
from overnight.flows.report.facts import Fact, list_facts
from overnight.flows.report.gallery import Card, Gallery, Group
from overnight.flows.report.row_sample import RowSample, bin_edges, light_tables, roles_of
from overnight.flows.report.spending import Use, uses_of
from overnight.flows.report.timeline import Timeline, arrange
from overnight.flows.report.verdict import Check, Verdict, judge, list_checks
from overnight.flows.runs.run import run_option
from overnight.tasks.artifacts import dispensable
from overnight.tasks.config.masking import masked_in
from overnight.tasks.errors import OvernightError
from overnight.tasks.state import lease
from overnight.tasks.state.run import REPORT, Run, timeline_of
from overnight.tasks.write.kinds import Checks

ROWS_A_GROUP = 12
REASONS = 12  # at most
Record = Mapping[str, Any]


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
    rows_problem: str = ""  # why no rows are shown
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
        return judge(self.record, self.checks, self.columns, self.has_published, agreement)

    @property
    def facts(self) -> list[Fact]:
        return list_facts(self.record, self.previous)


def read_report(job: Job, record: Record, file: str = "JOB.yaml") -> Report:
    """Return the report of a run. `record` is its receipt, or what `failure.json` has. `file` is the job file."""
    is_published = record.get("status") == "published"
    record = dict(record) if is_published else past.with_work(job, record)
    earlier = past.earlier_receipts(job, record) if is_published else []
    checks = _checks_of(job, record)
    settings = masked_in(record.get("settings") or job.settings())
    report = Report(
        record,
        earlier,
        list_checks(record, checks),
        arrange(record, past.attempt_names(job, record)),
        compare_columns(record, earlier, checks),
        uses_of(job, record),
        past.has_published(job, record),
        yaml.safe_dump(settings, sort_keys=False, allow_unicode=True),
        _commands(record, file),
    )
    gallery = Gallery(job, roles_of(record.get("columns") or {}))
    if is_published:
        _add_rows(report, gallery)
    reasons = past.group_reasons(past.quarantined_rows(job, record).to_pylist())
    report.more_reasons = max(len(reasons) - REASONS, 0)
    for reason in reasons[:REASONS]:
        report.reasons.append((reason, [gallery.failed_row(row) for row in reason.rows]))
    return report


def keep_report(job: Job, run: Run, record: Record, file: str) -> None:
    """Write the page of a run beside its receipt, as the newest and as that of its generation. It never fails a run."""
    from overnight.flows.report.page import render

    with dispensable("the run has no report"):
        lease.check(run.ledger, run.token)
        if record["status"] != "published":
            record = {**timeline_of(run), **record, "limit_rows": run.limit_rows}
        page = render(read_report(job, record, file)).encode()
        for name in (f"reports/{run.generation}.html", REPORT):
            (run.ledger / name).write_bytes(page)


def _checks_of(job: Job, record: Record) -> Checks:
    """Return the checks of the run, or those of the job if the receipt has none that this version can read."""
    try:
        return Checks.model_validate(record["settings"]["checks"])
    except (KeyError, ValueError):
        return job.checks


def _add_rows(report: Report, gallery: Gallery) -> None:
    """Read the published rows once, and the earlier ones for the comparison, and add what the page shows of them."""
    job, receipt, roles = gallery.job, report.record, gallery.roles
    records, records_before = receipt.get("columns") or {}, report.previous.get("columns") or {}
    edges = {}
    for name, record in records.items():
        bins = bin_edges(record, records_before.get(name) or {})
        if bins is not None:
            edges[name] = bins
    classes = list((records.get(roles.prediction) or {}).get("classes") or ())
    seed = int(hashlib.sha256(str(receipt["generation"]).encode()).hexdigest()[:8], 16)
    sample, before = RowSample(roles, edges, classes, ROWS_A_GROUP, seed), RowSample(roles, edges)
    report.sample = sample
    try:
        sample.read(light_tables(lambda names: published_rows.batches(job, receipt, names)))
        for title, rows in sample.groups().items():
            report.groups.append(gallery.group(title, published_rows.with_images(rows, job, receipt)))
    except (OSError, OvernightError, pa.ArrowException) as error:
        report.rows_problem = f"{type(error).__name__}: {error}"
        return
    names = [name for name in dict.fromkeys((*edges, roles.truth, roles.prediction)) if name in records_before]
    try:
        if names:
            before.read(published_rows.batches(job, report.previous, names))
            report.sample_before = before
    except (OSError, OvernightError, pa.ArrowException, KeyError):
        pass  # the earlier rows are gone: the page has no comparison with them
    for column in report.columns:
        counts = sample.histograms.get(column.name)
        if counts is not None:
            before_counts = report.sample_before.histograms.get(column.name)
            column.bins = bins_of(edges[column.name], counts, before_counts)


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
