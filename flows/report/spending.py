"""What a run used, and its price: tokens, costs of answers, hours of devices and of CPU workers."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from overnight.tasks.engine.progress_text import cost_text
from overnight.tasks.errors import JobError

SUMS = {"prompt_tokens": "prompt tokens", "completion_tokens": "completion tokens", "cost": "cost of answers"}


@dataclass(frozen=True)
class Use:
    """One line: an amount, its unit, and its price, in a currency of yours, if it is known."""

    name: str
    amount: float
    unit: str = ""
    price: float | None = None


def uses_of(job: Any, receipt: Mapping[str, Any]) -> list[Use]:
    """Return what a run used. Sums of columns are of the whole partition, and hours are of this attempt."""
    uses = _sums_of(receipt)
    device_hours = ((receipt.get("performance") or {}).get("device_seconds") or 0.0) / 3600
    if device_hours:
        uses.append(hours_priced("models on devices", device_hours, job, "price_per_gpu_hour"))
    seconds = sum(stage.get("seconds") or 0.0 for stage in (receipt.get("stages") or {}).values())
    worker_hours = max(seconds / 3600 - device_hours, 0.0)
    return [*uses, hours_priced("workers on CPUs", worker_hours, job, "price_per_cpu_hour")]


def _sums_of(receipt: Mapping[str, Any]) -> list[Use]:
    """Return the sums of the columns of tokens and costs."""
    uses, columns = [], receipt.get("columns") or {}
    for name, record in columns.items():
        for ending, title in SUMS.items():
            if record.get("sum") is None or not (name == ending or name.endswith(f"_{ending}")):
                continue
            unit, price = "tokens", None
            if ending == "cost":
                if not is_cost(name, receipt):
                    continue
                unit, price = "", record["sum"]
            model = "" if name == ending else f" ({name})"
            uses.append(Use(title + model, record["sum"], unit, price))
    for name, saving in (receipt.get("reused") or {}).items():
        if cost := saving.get("cost"):
            uses.append(Use(f"of these, reused ({name})", -cost, "", -cost))
    return uses


def is_cost(name: str, receipt: Mapping[str, Any]) -> bool:
    """Return True for the cost of a model's answers, whose tokens may be unpublished. Others are the user's data."""
    has_tokens = f"{name.removesuffix('cost')}prompt_tokens" in receipt["columns"]
    if name == "cost":
        return has_tokens or bool(receipt.get("spent"))
    return name.endswith("_cost") and has_tokens


def spent_in(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the known tokens and cost of a partition, by its receipt or failure.

    `spent` of the record also has answers of failed rows. Without it, the sums of columns count.
    """
    if spent := record.get("spent"):
        return {name: spent[name] for name in ("tokens", "cost") if spent.get(name)}
    sums: dict[str, float] = {}
    for use in _sums_of(record):
        name = use.unit or "cost"
        sums[name] = sums.get(name, 0.0) + use.amount
    return sums


def spent_text(record: Mapping[str, Any]) -> str:
    """Return `spent_in` as text, such as `12,000 tokens, cost 0.42`; empty if nothing is known."""
    spent = spent_in(record)
    parts = [f"{spent['tokens']:,.0f} tokens"] if "tokens" in spent else []
    if "cost" in spent:
        parts.append(f"cost {cost_text(spent['cost'])}")
    return ", ".join(parts)


def total_of(uses: list[Use]) -> float | None:
    """Return the sum of all prices, or None if none is known."""
    prices = [use.price for use in uses if use.price is not None]
    return sum(prices) if prices else None


def cost_of_1000(receipt: Mapping[str, Any]) -> float | None:
    """Return the price of 1,000 published rows by a receipt alone, or None if it is unknown.

    The hours of a run that resumed are not those of all rows, so its price is unknown.
    """
    prices = SimpleNamespace(**(receipt.get("settings") or {}))
    uses = uses_of(prices, receipt)
    total = total_of(uses)
    is_partial = receipt.get("rows_resumed") and any(use.unit == "hours" and use.price for use in uses)
    if total is None or is_partial or not receipt.get("rows_out"):
        return None
    return 1000 * total / float(receipt["rows_out"])


def hours_priced(name: str, hours: float, job: Any, key: str) -> Use:
    """Return hours with their price, of the job or of the variable `OVERNIGHT_PRICE_PER_...`."""
    price: float | None = getattr(job, key, None)
    variable = f"OVERNIGHT_{key.upper()}"
    text = os.environ.get(variable)
    if price is None and text:
        try:
            price = float(text)
        except ValueError:
            raise JobError(f"{variable}: expected a number, found {text!r}.") from None
    return Use(name, hours, "hours", None if price is None else hours * price)
