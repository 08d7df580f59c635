"""The spending of a run's requests: what answers have cost, what is under way, and whether more may be requested.

The run's supervisor has one `Spending` for all workers and models. A request under way counts with the mean of its
model's answers, or with its own maximum before `KNOWN_ANSWERS` of them. So the overrun is less than the maximum of the
requests that are under way at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

KNOWN_ANSWERS = 100
SILENT_SECONDS = 30.0  # a worker that is silent for longer has died: its requests count as paid


@dataclass(frozen=True)
class Amount:
    """Tokens, and their price in the currency of the job."""

    tokens: float = 0.0
    cost: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.cost + other.cost)

    def times(self, factor: float) -> Amount:
        return Amount(self.tokens * factor, self.cost * factor)


@dataclass(frozen=True)
class Paid:
    """Answers, and what they cost together. A request for several rows has an answer for each."""

    answers: int = 0
    amount: Amount = Amount()

    def __add__(self, other: Paid) -> Paid:
        return Paid(self.answers + other.answers, self.amount + other.amount)

    def times(self, factor: int) -> Paid:
        return Paid(self.answers * factor, self.amount.times(factor))

    @property
    def mean(self) -> Amount | None:
        """Return what an answer costs; None before enough answers are known."""
        return self.amount.times(1 / self.answers) if self.answers >= KNOWN_ANSWERS else None


@dataclass(frozen=True)
class Settled:
    """A request that has ended: its maximum, and what its answers cost, or None without an answer."""

    most: Paid
    amount: Amount | None


@dataclass(frozen=True)
class Reply:
    """The first `granted` requests may be sent. The others wait, or are refused for the reason `refusal`."""

    granted: int
    refusal: str = ""


@dataclass
class Spending:
    """What a run has spent by model. `limits` has the job's `budget`, and `ends_at` is its last moment."""

    limits: Mapping[str, float]
    ends_at: float | None
    paid: dict[str, Paid]
    under_way: dict[tuple[str, str], Paid] = field(default_factory=dict)  # by worker and model, at their maximum
    last_times: dict[str, float] = field(default_factory=dict)  # of the workers
    refusal: str = ""  # once the budget is reached

    def exchange(self, worker: str, model: str, settled: Iterable[Settled], wanted: Sequence[Paid]) -> Reply:
        """Note the requests of a worker that have ended, and return how many of `wanted` it may send now.

        A request that does not fit waits while others are under way, because these may cost less.
        """
        self.last_times[worker] = time.monotonic()
        self._end_silent_workers()
        requester = worker, model
        for request in settled:
            remainder = self.under_way.get(requester, Paid()) + request.most.times(-1)
            self.under_way[requester] = remainder if remainder.answers > 0 else Paid()
            if request.amount is not None:
                self._pay(model, Paid(request.most.answers, request.amount))
        for number, most in enumerate(wanted):
            if reason := self.refusal or self._reason(model, most):
                if not self.is_under_way:
                    self.refusal = reason
                return Reply(number, self.refusal)
            self.under_way[requester] = self.under_way.get(requester, Paid()) + most
        return Reply(len(wanted))

    @property
    def is_under_way(self) -> bool:
        return any(requests.answers for requests in self.under_way.values())

    def total(self) -> Paid:
        """Return what all answers have cost."""
        return sum(self.paid.values(), Paid())

    def _pay(self, model: str, paid: Paid) -> None:
        self.paid[model] = self.paid.get(model, Paid()) + paid

    def _expected(self, model: str, requests: Paid) -> Amount:
        mean = self.paid.get(model, Paid()).mean
        return mean.times(requests.answers) if mean else requests.amount

    def _reason(self, model: str, most: Paid) -> str:
        """Return why a request must not be sent now; an empty text if it may."""
        if self.ends_at and time.time() >= self.ends_at:
            return minutes_reached(self.limits["minutes"])
        total = self.total()
        amount = total.amount + self._expected(model, most)
        for (_, name), requests in self.under_way.items():
            amount += self._expected(name, requests)
        for key in ("cost", "tokens"):
            limit = self.limits.get(key)
            if limit is not None and getattr(amount, key) > limit:
                return budget_reached(key, limit, total)
        return ""

    def _end_silent_workers(self) -> None:
        """Count the requests of dead workers as paid: the endpoint may have answered them."""
        oldest = time.monotonic() - SILENT_SECONDS
        for worker, model in list(self.under_way):
            if self.last_times[worker] < oldest:
                requests = self.under_way.pop((worker, model))
                self._pay(model, Paid(0, self._expected(model, requests)))


def budget_reached(key: str, limit: float, total: Paid) -> str:
    """Return the message of a run that has spent its budget."""
    spent = round(getattr(total.amount, key), 6)
    return (
        f"budget.{key}: expected at most {limit:,.12g} for this partition, found {spent:,.12g} "
        f"spent, and the next request may exceed it. Raise budget.{key} and run again: {total.answers:,} answers are "
        "kept. Nothing was published."
    )


def minutes_reached(minutes: float) -> str:
    """Return the message of a run that has taken its minutes."""
    return (
        f"budget.minutes: expected a run of at most {minutes:,.6g} minutes, found rows that are not done by then. Run "
        "again, if need be with more budget.minutes: the rows and answers so far are kept. Nothing was published."
    )
