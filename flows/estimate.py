"""What a run will cost and take: from a few rows that a preview ran, the rows of the listing, and earlier receipts.

Amounts are sums over rows like those of the preview, each with its interval of 80 %. Without earlier receipts of the
same settings, the time is a rough one: the slowest stage of the preview, with the workers of the job.
"""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow.compute as pc

from overnight.flows.job.model import Job
from overnight.flows.ledger.forecast import UNLIKE, Experience, around, expected_rows, experience, run_seconds, sum_of
from overnight.flows.ledger.reader import earlier_receipts
from overnight.flows.preview import Preview
from overnight.flows.report.spending import hours_priced
from overnight.flows.runs.run import describe_run
from overnight.tasks.engine.progress import Interval
from overnight.tasks.engine.progress_text import cost_text, duration
from overnight.tasks.errors import STAGES
from overnight.tasks.infer.kinds import Predictor, RemoteModel, Service, engines
from overnight.tasks.ingest.in_process import count_inputs

TOKENS = ("prompt_tokens", "completion_tokens")
ROWS_WITHOUT_A_LISTING = 1000
RECEIPTS = 6
NO_FACTORS: Mapping[str, float] = MappingProxyType({})
START_SECONDS = 5.0  # of Ray and Prefect, before the first row: 54 photos took so long in all on two cores


@dataclass(frozen=True)
class Estimate:
    """What `rows` rows need, with intervals; None for what no row of the preview showed."""

    rows: int
    is_whole: bool  # the rows are those of the partition
    sampled: int
    tokens: Interval | None
    cost: Interval | None
    time: Interval | None

    def lines(self) -> Iterator[str]:
        """Yield the estimate as lines for a terminal."""
        about = "all " if self.is_whole else ""
        yield f"estimate for {about}{self.rows:,} rows, from {self.sampled:,} rows that ran"
        if self.tokens:
            yield f"  tokens: {_text(self.tokens, '{:,.0f}'.format)}"
        if self.cost:
            yield f"  cost: {_text(self.cost, cost_text)}"
        if self.time:
            scope = f"{duration(self.time.low)} to {duration(self.time.high)}"
            yield f"  time: about {duration(self.time.seconds)} (80 %: {scope})"
        else:
            yield "  time: that of the provider's batches"


def estimate(job: Job, preview: Preview) -> Estimate:
    """Return the estimate for the preview's partition. This lists its inputs."""
    inputs = count_inputs(job.source, preview.partition)
    run = describe_run(job, preview.partition)
    receipts = earlier_receipts(run.state, run.partition_column, job.name, RECEIPTS, run.ledger.name)
    earlier = experience(receipts, run.fingerprint)
    rows = inputs.rows if inputs.rows is not None else expected_rows(earlier, inputs.size)
    return estimate_of(job, preview, rows, earlier if earlier.is_alike else None)


def estimate_of(job: Job, preview: Preview, rows: int | None, earlier: Experience | None = None) -> Estimate:
    """Return the estimate for this number of rows, or for 1,000 if it is None."""
    is_whole = rows is not None
    rows = ROWS_WITHOUT_A_LISTING if rows is None else rows
    time, discounts = run_seconds(earlier, rows) if earlier else None, _discounts(job)
    if not time and not discounts:  # no row shows how long a batch takes
        time = _rough_seconds(job, preview, rows)
    cost = _sum(preview, _columns(job, job.models, ("cost",)), rows, discounts)
    if time and (devices := _price_of_devices(job, time.seconds)):
        cost = cost or Interval(0.0, 0.0, 0.0)
        cost = Interval(*(amount + devices * share for amount, share in _beside(cost, time)))
    tokens = _sum(preview, _columns(job, job.models, TOKENS), rows)
    return Estimate(rows, is_whole, preview.rows_read, tokens, cost, time)


def overrun(job: Job, preview: Preview | None = None) -> str:
    """Return by how much a run may exceed its budget; an empty text for a job without a budget of cost or tokens.

    With a preview, the prompts are as long as its longest; otherwise only the answers have a bound.
    """
    if not (job.budget.cost or job.budget.tokens):
        return ""
    requests, tokens, cost, longer = 0, 0.0, 0.0, ""
    for model in job.models:
        if not isinstance(model, RemoteModel):
            continue
        count = _workers(model) * model.max_concurrent_requests
        longest = model.rows_per_request() * _longest_prompt(job, model, preview)
        amount = model.price_of(longest, model.most_answer_tokens())
        if (by_row := getattr(model, "by_row", None)) and by_row.max_new_tokens:
            longer += f", and by longer answers of rows with a larger {by_row.max_new_tokens}"
        requests, tokens, cost = requests + count, tokens + count * amount.tokens, cost + count * amount.cost
    prompts = "with prompts as the longest of these rows" if preview else "and by the prompts of these requests"
    price = f", cost {cost_text(cost)}" if cost else ""
    return (
        f"at the limit at most {requests:,} requests are under way, so the budget is exceeded by less than "
        f"{tokens:,.0f} tokens{price}, {prompts}{longer}"
    )


def _sum(
    preview: Preview, names: Collection[str], rows: int, factors: Mapping[str, float] = NO_FACTORS
) -> Interval | None:
    """Return the sum of these columns over `rows` rows. `factors` are those of some columns."""
    columns = []
    for name in preview.table.column_names:
        if name in names:
            amounts = pc.multiply(preview.table[name].cast("float64"), factors.get(name, 1.0))
            columns.append(pc.fill_null(amounts, 0.0).to_pylist())
    if not columns or not preview.rows_read:
        return None
    values = list(map(sum, zip(*columns, strict=True)))
    return sum_of(values, rows * len(values) / preview.rows_read)


def _rough_seconds(job: Job, preview: Preview, rows: int) -> Interval:
    """Return the seconds of the slowest step or model for all rows, and of everything that happens once."""
    once, slowest = START_SECONDS, 0.0
    models = {f"inference.{number} {entry.shown_name()}": entry for number, entry in _models(job)}
    for stage, seconds in preview.seconds.items():
        if stage.endswith(": load") or stage in STAGES:
            once += seconds
        elif stage in models:
            slowest = max(slowest, _seconds_a_row(job, models[stage], seconds, preview))
        else:
            slowest = max(slowest, seconds / max(preview.rows_read, 1) / (os.cpu_count() or 1))
    return around(once + rows * slowest, UNLIKE)


def _seconds_a_row(job: Job, model: Predictor, seconds: float, preview: Preview) -> float:
    rows = max(preview.rows_read, 1)
    if not isinstance(model, RemoteModel):
        return seconds / rows / _workers(model)
    rows_a_request = model.rows_per_request()
    at_once = model.max_concurrent_requests * rows_a_request
    latency = seconds / math.ceil(rows / at_once)
    a_row = latency / at_once / _workers(model)
    if not isinstance(model, Service):
        return a_row
    if isinstance(model.requests_per_minute, int):  # only the endpoint knows an automatic limit
        a_row = max(a_row, 60 / model.requests_per_minute / rows_a_request)
    tokens = _sum(preview, _columns(job, [model], TOKENS), 1)
    if tokens and isinstance(model.tokens_per_minute, int):
        a_row = max(a_row, 60 * tokens.seconds / model.tokens_per_minute)
    return a_row


def _price_of_devices(job: Job, seconds: float) -> float:
    """Return the price of the devices that the models reserve for this time; 0 without `price_per_gpu_hour`."""
    devices = sum(sum(model.accelerators().values()) * _workers(model) for model in engines(job.models))
    if not devices:
        return 0.0
    return hours_priced("", devices * seconds / 3600, job, "price_per_gpu_hour").price or 0.0


def _beside(cost: Interval, time: Interval) -> list[tuple[float, float]]:
    shares = (1.0, time.low / time.seconds, time.high / time.seconds)
    return list(zip((cost.seconds, cost.low, cost.high), shares, strict=True))


def _longest_prompt(job: Job, model: RemoteModel, preview: Preview | None) -> int:
    name = _column(job, model, "prompt_tokens")
    if preview is None or name not in preview.table.column_names:
        return 0
    return max(filter(None, preview.table[name].to_pylist()), default=0)


def _discounts(job: Job) -> dict[str, float]:
    """Return the price of the models with batches, as a share of that of the preview's requests, by their columns."""
    discounts = {}
    for model in job.models:
        if batch := getattr(model, "batch", None):
            discounts[_column(job, model, "cost")] = float(batch.price)
    return discounts


def _columns(job: Job, models: Iterable[Predictor], outputs: Collection[str]) -> set[str]:
    """Return which of these outputs the models have, by the names of their columns."""
    names = set()
    for model in models:
        for output in {*outputs} & {*(model.outputs_made() or ())}:
            names.add(_column(job, model, output))
    return names


def _column(job: Job, model: Predictor, name: str) -> str:
    return f"{model.name}_{name}" if len(job.models) > 1 else name


def _models(job: Job) -> Iterator[tuple[int, Predictor]]:
    for number, entry in enumerate(job.inference):
        if isinstance(entry, Predictor):
            yield number, entry


def _workers(model: Predictor) -> int:
    workers = model.workers
    if workers is None:
        return 1
    return workers if isinstance(workers, int) else workers[1]


def _text(interval: Interval, form: Callable[[float], str]) -> str:
    likely, low, high = map(form, (interval.seconds, interval.low, interval.high))
    return f"about {likely} (80 %: {low} to {high})"
