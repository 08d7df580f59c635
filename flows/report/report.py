"""Gather what the page of a run shows, and keep the page: from its receipt, the ledger and the published rows.

The rows are read once, and only as far as the bounds in `row_sample.py`. A run that failed, or that a user cancelled,
has no receipt: its record is that of `failure.json`, and the page shows the work that its next run takes over.
"""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import yaml

from overnight.flows.job.model import Job
from overnight.flows.ledger import published_rows
from overnight.flows.report import past
from overnight.flows.report.columns import Column, compare_columns
from overnight.flows.report.facts import Fact, list_facts
from overnight.flows.report.gallery import Budget, Card, Group, cards_of_failed_rows, make_groups
from overnight.flows.report.quarantine import Reason, group_reasons
from overnight.flows.report.row_sample import (
    Agreement,
    Roles,
    RowSample,
    bin_edges,
    light_tables,
    roles_of,
    sample_rows,
)
from overnight.flows.report.spending import Prices, Use, prices_of, uses_of
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
REASONS, CONFUSIONS = 12, 5  # at most
Record = Mapping[str, Any]


@dataclass
class Report:
    """All that the page shows of one run."""

    record: dict[str, Any]  # the receipt, or the record of a run that did not publish
    checks: list[Check]
    timeline: Timeline
    columns: list[Column]
    uses: list[Use]
    prices: Prices
    previous: dict[str, Any] | None = None  # the receipt of the comparison
    compared: int = 0  # receipts in the mean
    sample: RowSample = field(default_factory=RowSample)
    groups: list[Group] = field(default_factory=list)
    reasons: list[tuple[Reason, list[Card]]] = field(default_factory=list)
    more_reasons: int = 0
    agreement: Agreement | None = None
    agreement_before: Agreement | None = None
    roles: Roles = field(default_factory=Roles)
    rows_problem: str = ""  # why no rows are shown
    has_published: bool = True  # this run, or an earlier run of the partition
    settings: str = ""  # YAML
    commands: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_published(self) -> bool:
        return self.record.get("status") == "published"

    @property
    def verdict(self) -> Verdict:
        now, before = self.agreement or Agreement(), self.agreement_before or Agreement()
        return judge(self.record, self.checks, self.columns, self.has_published, (now.share, before.share))

    @property
    def confusions(self) -> list[tuple[tuple[str, str], int]]:
        """Return the most frequent differences between labels and predictions, with their numbers of rows."""
        counts = self.agreement.confusions if self.agreement else {}
        return sorted(counts.items(), key=lambda item: -item[1])[:CONFUSIONS]

    @property
    def facts(self) -> list[Fact]:
        return list_facts(self.record, self.previous or {})


def read_report(job: Job, record: Record, file: str = "JOB.yaml") -> Report:
    """Return the report of a run. `record` is its receipt, or what `failure.json` has. `file` is the job file."""
    is_published = record.get("status") == "published"
    record = dict(record) if is_published else past.with_work(job, record)
    earlier = past.earlier_receipts(job, record) if is_published else []
    checks = _checks_of(job, record)
    columns = compare_columns(record, earlier, checks)
    prices = prices_of(job)
    settings = masked_in(record.get("settings") or job.settings())
    report = Report(
        record,
        list_checks(record, checks),
        arrange(record, past.attempt_names(job, record)),
        columns,
        uses_of(record, prices),
        prices,
        next(iter(earlier), None),
        len(earlier),
        has_published=past.has_published(job, record),
        settings=yaml.safe_dump(settings, sort_keys=False, allow_unicode=True),
        commands=_commands(record, file),
    )
    budget = Budget()
    if is_published:
        _add_rows(report, job, budget)
    rows = past.quarantined_rows(job, record).to_pylist()
    reasons = group_reasons(rows)
    report.more_reasons = max(len(reasons) - REASONS, 0)
    for reason in reasons[:REASONS]:
        report.reasons.append((reason, cards_of_failed_rows(reason.rows, job, budget)))
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


def _add_rows(report: Report, job: Job, budget: Budget) -> None:
    """Read the published rows once, and the earlier ones for the comparison, and add what the page shows of them."""
    receipt, previous = report.record, report.previous or {}
    records, records_before = receipt.get("columns") or {}, previous.get("columns") or {}
    roles = roles_of(records, "label")
    edges = {}
    for name, record in records.items():
        bins = bin_edges(record, records_before.get(name) or {})
        if bins is not None:
            edges[name] = bins
    classes = list((records.get(roles.prediction) or {}).get("classes") or ())
    seed = int(hashlib.sha256(str(receipt["generation"]).encode()).hexdigest()[:8], 16)
    try:
        tables = light_tables(lambda names: published_rows.batches(job, receipt, names))
        report.sample = sample_rows(tables, roles, classes, edges, ROWS_A_GROUP, seed)
        groups = {}
        for title, rows in report.sample.groups.items():
            groups[title] = published_rows.with_images(rows, job, receipt)
        report.groups = make_groups(groups, job, roles, budget)
    except (OSError, OvernightError, pa.ArrowException) as error:
        report.rows_problem = f"{type(error).__name__}: {error}"
        return
    report.roles, report.agreement = roles, report.sample.agreement
    names = [name for name in (*edges, roles.truth, roles.prediction) if name in records_before]
    before = _sample_before(job, previous, roles, edges, list(dict.fromkeys(names)))
    report.agreement_before = before.agreement
    _add_histograms(report.columns, edges, report.sample, before)


def _sample_before(
    job: Job, previous: Record, roles: Roles, edges: Mapping[str, Any], names: Sequence[str]
) -> RowSample:
    """Return the counts of the earlier partition; empty if its rows cannot be read any more."""
    if not names:
        return RowSample()
    try:
        return sample_rows(published_rows.batches(job, previous, list(names)), roles, (), edges, 0, 0)
    except (OSError, OvernightError, pa.ArrowException, KeyError):
        return RowSample()


def _add_histograms(columns: Sequence[Column], edges: Mapping[str, Any], now: RowSample, before: RowSample) -> None:
    for column in columns:
        if column.name in now.histograms:
            column.edges, column.counts = edges[column.name], now.histograms[column.name]
            column.counts_before = before.histograms.get(column.name)


def _commands(record: Record, file: str) -> list[tuple[str, str]]:
    """Return what a user may type next, each with its purpose."""
    run = f"overnight run {shlex.quote(file)}{run_option(record['partition'])}"
    show = f"overnight show {shlex.quote(file)}{run_option(record['partition'])}"
    if record.get("status") != "published":
        commands = [("Resume: settled rows are not computed again", run), ("Begin again", f"{run} --force")]
        if record.get("quarantine"):
            commands.append(("Look at the rows that failed", f"{show} --quarantine"))
        return commands
    commands = [("Run it again", f"{run} --force"), ("Show rows", f"{show} -n 5")]
    commands.append(("Show one row", f"{show} --where \"row_id = '...'\""))
    if record.get("rows_quarantined"):
        commands.append(("Look at the rows that failed", f"{show} --quarantine"))
        commands.append(("Run only these again, after a fix", f"{run} --retry-quarantined"))
    return commands
