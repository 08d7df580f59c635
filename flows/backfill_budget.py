"""The budget of a backfill: what all of its runs may cost together, and how many minutes the backfill may take.

Each run gets what is left as its own `budget`. What it paid is in its receipt or failure.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from overnight.flows.backfill_plan import Step
from overnight.flows.job.budget import Budget
from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.runs.attempt import JUDGED
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import JobError
from overnight.tasks.state.run import unfinished_generation

LEAST = 1e-6  # a run's own budget is above 0


def limits_of(file: JobFile, settings: Sequence[str], budget: Sequence[str]) -> dict[str, float]:
    """Return the limits of texts such as `cost=40`. Raise `JobError` unless the job could have them as its `budget`."""
    limits: dict[str, float] = {}
    for text in budget:
        key, limit = text.partition("=")[0], None
        if key in Budget.model_fields:
            limit = file.job([*settings, f"budget.{text}"]).budget.limits.get(key)
        if limit is None:  # `cost=` gives no limit
            raise JobError(f"budget: expected cost=40, tokens=2e9 or minutes=300, found {text!r}.")
        limits[key] = limit
    return limits


@dataclass
class BudgetLeft:
    """The limits of a backfill by key, and what its runs have spent so far. Minutes also count from its start."""

    limits: Mapping[str, float]
    spent: dict[str, float] = field(default_factory=dict)
    start: float = field(default_factory=time.monotonic)
    usual: dict[str, float] = field(default_factory=dict)  # what the newest run took, for steps without an estimate

    def rest(self) -> dict[str, float]:
        """Return what is left by key."""
        minutes = (time.monotonic() - self.start) / 60
        rest = {}
        for key, limit in self.limits.items():
            rest[key] = limit - self.spent.get(key, 0.0) - (minutes if key == "minutes" else 0.0)
        return rest

    def refusal(self, step: Step) -> str:
        """Return why a step must not begin; an empty text if its estimate fits, or is unknown."""
        need = {**self.usual, **estimated(step)}
        for key, rest in self.rest().items():
            amount = need.get(key)
            if rest <= 0:
                return f"budget.{key}: nothing is left of {self.limits[key]:,.12g}"
            if amount is not None and amount > rest:
                return (
                    f"budget.{key}: {rest:,.4g} of {self.limits[key]:,.12g} is left, and {step.partition} needs about "
                    f"{amount:,.4g}"
                )
        return ""

    def add(self, amounts: Mapping[str, float]) -> None:
        """Count amounts as spent."""
        for key, amount in amounts.items():
            self.spent[key] = self.spent.get(key, 0.0) + amount

    def settings(self, job: Job, step: Step) -> list[str]:
        """Return the settings with which the run of a step cannot exceed the rest; none if its own budget is smaller.

        A run that resumes counts what its generation paid before, so its limit has that in addition.
        """
        limits = []
        paid = _paid(step.entry.failure) if self.limits and _is_resumed(job, step) else {}
        for key, rest in self.rest().items():
            limit, own = rest + paid.get(key, 0.0), job.budget.limits.get(key)
            if own is None or limit < own:
                limits.append(f"budget.{key}={max(limit, LEAST):.9f}")
        return limits

    def charge(self, step: Step, record: Mapping[str, Any] | None) -> None:
        """Count what the run of a step paid, by its receipt or failure. Earlier attempts of its generation do not."""
        before, after = step.entry.failure or {}, record or {}
        amounts = _paid(after)
        if before.get("generation") == after.get("generation"):
            for key, amount in _paid(before).items():
                amounts[key] = max(amounts[key] - amount, 0.0)
        self.add(amounts)
        if seconds := after.get("seconds"):  # of a receipt
            self.usual = {**amounts, "minutes": seconds / 60}


def ended_by(settings: Sequence[str], message: str) -> str:
    """Return the message of a run that reached a limit of these settings; an empty text for a limit of its job."""
    keys = [text.partition("=")[0] for text in settings]
    return message if any(f"{key}:" in message for key in keys) else ""


def estimated(step: Step) -> dict[str, float]:
    """Return the cost and the minutes that a step needs, as far as earlier receipts show it."""
    need = {}
    if step.cost is not None:
        need["cost"] = step.cost
    if step.time:
        need["minutes"] = step.time.seconds / 60
    return need


def _paid(record: Mapping[str, Any] | None) -> dict[str, float]:
    spent = (record or {}).get("spent") or {}
    return {"cost": spent.get("cost") or 0.0, "tokens": spent.get("tokens") or 0.0}


def _is_resumed(job: Job, step: Step) -> bool:
    """Return True if the run of a step goes on with the generation of the partition's failure."""
    failure = step.entry.failure
    if not failure or not failure.get("spent") or failure.get("error_type") in JUDGED or step.is_retry:
        return False
    run = describe_run(job, step.partition)
    return unfinished_generation(run.ledger, run.fingerprint) == failure["generation"]
