"""The budget of a run whose requests go into batches: a part is sent only if its estimate fits below the limits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from overnight.tasks.infer.batch.collection import PREFIX
from overnight.tasks.infer.batch.parts import UNDER_WAY, Part
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.spending import paid_in
from overnight.tasks.storage.location import Location
from overnight.tasks.workers.spending import KNOWN_ANSWERS, Amount, Paid, budget_reached

FIRST_ROWS = 2 * KNOWN_ANSWERS  # in the first part, whose answers show what the others cost


@dataclass
class Cap:
    """The limits `cost` and `tokens` of a run. `price` is that of a token, as a share of its usual price."""

    limits: Mapping[str, float]
    model: RemoteModel
    price: float
    folder: Location  # of the log of answers
    known: dict[str, Paid] = field(default_factory=dict)  # by file of the log

    @property
    def is_set(self) -> bool:
        return bool({"cost", "tokens"} & {*self.limits})

    def refusal(self, part: Part, parts: Iterable[Part]) -> str:
        """Return why a part must not be sent now, beside what all parts have under way; an empty text if it may.

        A charged request without an answer counts as one that is under way.
        """
        if not self.is_set:
            return ""
        under_way = {item.name: item for item in parts if item.state in UNDER_WAY}
        total = self._paid(under_way.values())
        amount = total.amount + self._expected(part, part.rows, total)
        for item in parts:
            rows = item.rows if item.name in under_way else 0
            rows += sum(batch["charged"] - batch["answered"] for batch in item.batches)
            amount += self._expected(item, rows, total)
        for key in ("cost", "tokens"):
            limit = self.limits.get(key)
            if limit is not None and getattr(amount, key) > limit:
                return budget_reached(key, limit, total)
        return ""

    def _expected(self, part: Part, rows: int, total: Paid) -> Amount:
        """Return what requests of a part cost: the mean of the answers, or before enough are known the maximum."""
        if total.mean:
            return total.mean.times(rows)
        tokens = part.tokens * rows / part.rows
        amounts = self.model.price_of(tokens, 0), self.model.price_of(0, tokens)
        return Amount(tokens, max(amount.cost for amount in amounts) * self.price)

    def _paid(self, under_way: Iterable[Part]) -> Paid:
        """Return what the answers in the log cost. A file that may still be replaced is of a part under way."""
        current = {f"{PREFIX}{part.name}-{len(part.batches)}.jsonl" for part in under_way}
        for name in self.folder.names():
            if name not in self.known and name not in current:
                self.known[name] = paid_in(self.folder / name, self.model)
        return sum(self.known.values(), Paid())
