"""The plan of a change: which partitions a job would run now beside what is published, by what, and what they take.

A backfill runs it. A budget takes partitions in order until the next one does not fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from overnight.flows.backfill_budget import BudgetLeft, estimated, limits_of
from overnight.flows.backfill_plan import Request, Step, steps_of, stuck_in, stuck_text, summary
from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.ledger.forecast import together
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.ledger.remembered import Remembered, remembered_rows
from overnight.flows.ledger.staleness import Reason, some
from overnight.flows.schedule.partitions import is_due
from overnight.tasks.errors import first_line


@dataclass(frozen=True)
class Change:
    """One partition that runs; `refusal` explains why the budget leaves it for the next time."""

    step: Step
    refusal: str = ""

    @property
    def causes(self) -> list[str]:
        """Return in short what makes the partition run."""
        entry = self.step.entry
        if self.step.is_retry:
            return ["quarantine"]
        if entry.status != "stale":
            return ["never published" if entry.status == "missing" else str(entry.status)]
        causes: dict[str, None] = {}
        for reason in entry.why:
            if isinstance(reason, Reason):
                causes |= dict.fromkeys(reason.causes)
        return list(causes) or ["inputs"]

    @property
    def line(self) -> str:
        """Return why the partition runs, such as `model: inference.clip.model: a -> b`."""
        text = ", ".join(map(first_line, self.step.why))
        if self.step.entry.status != "stale":
            return text
        return f"{', '.join(self.causes)}: {text.removeprefix('settings changed: ').removeprefix('inputs changed: ')}"

    def as_json(self) -> dict[str, Any]:
        return {**self.step.as_json(), "causes": self.causes, "left": self.refusal or None}


@dataclass(frozen=True)
class ChangePlan:
    """The partitions to run in their order, what a budget leaves, how many stay, and what is remembered."""

    job: Job
    request: Request
    changes: Sequence[Change]
    left: Sequence[Change]
    unchanged: int
    remembered: Sequence[Remembered]
    budget: BudgetLeft
    stuck: Mapping[str, str]  # what is selected and cannot run, with the reasons

    @property
    def steps(self) -> list[Step]:
        """Return the steps that run now."""
        return [change.step for change in self.changes]

    def lines(self) -> list[str]:
        """Return the totals of the plan, and what the budget leaves or cannot run, as lines."""
        scope = f"would run {summary(self.steps)}" if self.changes else "nothing to run"
        unchanged = f"; {self.unchanged:,} published, which stay" if self.unchanged else ""
        lines = [f"{self.job.name}: {scope}{unchanged}"]
        if self.left:
            names = some([change.step.partition for change in self.left])
            lines.append(f"left for the next time: {names}. {self.left[0].refusal}")
        if self.stuck:
            lines.append(stuck_text(self.stuck))
        return [*lines, *map(str, self.remembered)]

    def as_json(self) -> dict[str, Any]:
        return {
            "job": self.job.name,
            "settings": list(self.request.settings),
            "budget": list(self.request.budget),
            "partitions": [*self.changes, *self.left],
            "unchanged": self.unchanged,
            "stuck": self.stuck,
            "total": self._total(),
            "memory": self.remembered,
        }

    def _total(self) -> dict[str, Any]:
        times, costs, rows = [], [], 0
        for step in self.steps:
            rows += step.rows or 0
            if step.time:
                times.append(step.time)
            if step.cost is not None:
                costs.append(step.cost)
        time = together(times)
        return {
            "partitions": len(self.changes),
            "estimated_rows": rows,
            "estimated_seconds": time and round(time.seconds, 1),
            "estimated_seconds_of_80_percent": time and [round(time.low, 1), round(time.high, 1)],
            "estimated_cost": sum(costs) if costs else None,
        }


def plan_change(file: JobFile, request: Request) -> ChangePlan:
    """Return the plan of the job file with the settings and the limits of `request`."""
    job, now = file.job(request.settings), datetime.now(UTC)
    budget = BudgetLeft(limits_of(file, request.settings, request.budget))
    inputs = request.lists_inputs
    entries = read_ledger(job, request.start, request.end, inputs, now=now, where=request.where)
    request = _with_days(job, request, entries)
    steps = steps_of(job, request, entries, now, is_dry=True)
    changes, left = _within(steps, replace(budget, spent={}))
    unchanged = _unchanged(job, entries, steps, now)
    stuck = stuck_in(job, request, entries, now)
    return ChangePlan(job, request, changes, left, unchanged, remembered_rows(job), budget, stuck)


def _with_days(job: Job, request: Request, entries: Sequence[PartitionStatus]) -> Request:
    """Return the request with the first and the last day of the entries, unless it has its own."""
    if not (entries and job.periods and job.periods.every):
        return request
    days = [day for entry in entries if (day := job.periods.first_day(entry.partition))]
    start = request.start or days[0]
    return replace(request, start=start, end=request.end or max(start, days[-1]))  # start may be within a month


def _unchanged(job: Job, entries: Sequence[PartitionStatus], steps: Sequence[Step], now: datetime) -> int:
    """Return how many partitions are published and do not run."""
    names = [step.partition for step in steps]
    count = 0
    for entry in entries:
        is_fresh = entry.status == "published" and is_due(job, entry.partition, now)
        count += is_fresh and entry.partition not in names
    return count


def _within(steps: Sequence[Step], budget: BudgetLeft) -> tuple[list[Change], list[Change]]:
    """Return the steps that run, and the steps that are left: the first that does not fit, and all after it."""
    changes: list[Change] = []
    for number, step in enumerate(steps):
        if refusal := budget.refusal(step):
            return changes, [Change(rest, refusal) for rest in steps[number:]]
        changes.append(Change(step))
        budget.add(estimated(step))
    return changes, []
