"""The plan of a change: which partitions a job would run now beside what is published, by what, and what they take.

A backfill runs it. A budget takes partitions in order until the next one does not fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from overnight.flows.backfill_budget import BudgetLeft, estimated, limits_of
from overnight.flows.backfill_plan import Request, Step, steps_of, summary
from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.ledger.forecast import together
from overnight.flows.ledger.partition_status import read_ledger
from overnight.flows.ledger.remembered import Remembered, remembered_rows
from overnight.flows.ledger.staleness import Reason, some
from overnight.flows.schedule.partitions import is_due


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
        causes: list[str] = []
        for reason in entry.why:
            if isinstance(reason, Reason):
                causes += [cause for cause in reason.causes if cause not in causes]
        return causes or ["inputs"]

    def as_json(self) -> dict[str, Any]:
        return {**self.step.as_json(), "causes": self.causes, "left": self.refusal or None}


@dataclass(frozen=True)
class ChangePlan:
    """The partitions to run in their order, how many stay as they are, and what is remembered for the models."""

    job: Job
    request: Request
    changes: Sequence[Change]
    unchanged: int
    remembered: Sequence[Remembered]
    budget: BudgetLeft

    @property
    def steps(self) -> list[Step]:
        """Return the steps that run now."""
        return [change.step for change in self.changes if not change.refusal]

    @property
    def left(self) -> list[Change]:
        return [change for change in self.changes if change.refusal]

    def lines(self) -> list[str]:
        """Return the totals of the plan, and what the budget leaves, as lines."""
        unchanged = f"; {self.unchanged:,} published, which stay" if self.unchanged else ""
        lines = [f"{self.job.name}: would run {summary(self.steps)}{unchanged}"]
        if left := self.left:
            names = some([change.step.partition for change in left])
            lines.append(f"left for the next time: {names}. {left[0].refusal}")
        return [*lines, *map(str, self.remembered)]

    def as_json(self) -> dict[str, Any]:
        steps = self.steps
        time = together([step.time for step in steps if step.time])
        costs = [step.cost for step in steps if step.cost is not None]
        return {
            "job": self.job.name,
            "settings": list(self.request.settings),
            "budget": list(self.request.budget),
            "partitions": self.changes,
            "unchanged": self.unchanged,
            "total": {
                "partitions": len(steps),
                "estimated_rows": sum(step.rows or 0 for step in steps),
                "estimated_seconds": time and round(time.seconds, 1),
                "estimated_seconds_of_80_percent": time and [round(time.low, 1), round(time.high, 1)],
                "estimated_cost": sum(costs) if costs else None,
            },
            "memory": self.remembered,
        }


def plan_change(file: JobFile, request: Request) -> ChangePlan:
    """Return the plan of the job file with the settings of `request`, whose days are filled in."""
    job = file.job(request.settings)
    limits = limits_of(file, request.settings, request.budget)
    moment = datetime.now(UTC)
    inputs = request.lists_inputs
    entries = read_ledger(job, request.start, request.end, inputs, now=moment, where=request.where)
    if job.periods and job.periods.every:
        days = [day for entry in entries if (day := job.periods.first_day(entry.partition))]
        request = _with_days(request, days)
    steps = steps_of(job, request, entries, moment, is_dry=True)
    changes = _within(steps, BudgetLeft(limits))
    partitions = {step.partition for step in steps}
    others = [entry for entry in entries if entry.partition not in partitions]
    unchanged = sum(entry.status == "published" and is_due(job, entry.partition, moment) for entry in others)
    return ChangePlan(job, request, changes, unchanged, remembered_rows(job), BudgetLeft(limits))


def _with_days(request: Request, days: Sequence[date]) -> Request:
    first, last = min(days, default=None), max(days, default=None)
    return replace(request, start=request.start or first, end=request.end or last)


def _within(steps: Sequence[Step], budget: BudgetLeft) -> list[Change]:
    """Return the steps as changes. The first that does not fit, and all after it, are left."""
    changes, refusal = [], ""
    for step in steps:
        refusal = refusal or budget.refusal(step)
        changes.append(Change(step, refusal))
        budget.add(estimated(step))
    return changes
