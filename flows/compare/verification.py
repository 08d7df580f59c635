"""`overnight verify`: draw source rows, compute them again as their receipt records it, and compare.

A source row is verified if the rows that were published of it are the rows that are computed now. The inputs are those
of the manifest: a file that changed or is gone cannot be verified.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap, zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from overnight.flows.compare.alike import differing, tolerance_of
from overnight.flows.compare.sides import NO_ROWS, ComputedAgain, Drawing, compute_again
from overnight.flows.job.loading import validated
from overnight.flows.job.model import Job
from overnight.flows.ledger.published_rows import records_of_receipt
from overnight.flows.ledger.results import Result, Results
from overnight.flows.ledger.staleness import changed_inputs, changed_settings
from overnight.flows.runs.run import describe_run
from overnight.tasks.config.masking import HIDDEN
from overnight.tasks.errors import OvernightError
from overnight.tasks.infer.kinds import RemoteModel
from overnight.tasks.preprocess.kinds import PartitionStep
from overnight.tasks.rows.agreement import most_that_differ
from overnight.tasks.state.run import Run
from overnight.tasks.write.in_process import combine, describe, summary, versions

LEVELS = 3  # steps that make several rows of one: each appends to the row's id
SOURCE = "__source"
CHANGED = ("SourceChanged", "SourceVanished")
FIGURES = ("rows", "nulls", "mean", "min", "max", "standard_deviation")
NOT_COMPARED = ("commit", "overnight", "prefect", "prefect-ray", "ray")  # they compute nothing


class NotVerifiable(OvernightError):
    """The rows of a partition cannot be computed again, so nothing is known about them."""


@dataclass(frozen=True)
class Difference:
    """A source row whose published result is another than the one computed now, and in what."""

    row_id: str
    what: str


@dataclass(frozen=True)
class Verification:
    """The result: `checked` of `drawn` source rows were compared, of `total` in the partition.

    `tolerances` has the compared columns, and `reasons` has sentences that explain differences.
    """

    job: str
    partition: str
    generation: str
    total: int
    drawn: int
    checked: int
    differences: list[Difference]
    tolerances: dict[str, float]
    reasons: list[str]

    @property
    def most(self) -> int:
        """Return how many source rows of the partition differ at most, at 95 %."""
        return most_that_differ(len(self.differences), self.checked, self.total)

    def as_json(self) -> dict[str, Any]:
        return {
            **{"job": self.job, "partition": self.partition, "generation": self.generation},
            **{"status": "differs" if self.differences else "verified", "rows_in": self.total},
            **{"rows_drawn": self.drawn, "rows_checked": self.checked},
            **{"rows_differing": len(self.differences), "confidence": 0.95},
            **{"share_at_most": self.most / self.total if self.total else 0.0},
            **{"tolerances": self.tolerances, "reasons": self.reasons},
            "differences": list(map(vars, self.differences)),
        }


def verify(
    job: Job, partition: str | None = None, rows: int = 300, seed: int = 0, file: str = "JOB.yaml"
) -> Verification:
    """Draw source rows of a published partition, compute them again as recorded, and compare.

    Raise `NotVerifiable` if the model draws at random, or the record or all inputs are gone.
    """
    results = Results(job, file, job.published)
    result = results.result(results.partition(partition))
    receipt, name = result.receipt, f"{job.name}/{result.name}"
    then = _recorded(job, receipt, file)
    for model in then.models:
        if isinstance(model, RemoteModel) and getattr(model, "draws", bool)():
            model_name = model.shown_name()
            raise NotVerifiable(f"{name}: {model_name} draws its answers at random: expected temperature 0.")
    folder = records_of_receipt(job, receipt) / "generations" / receipt["generation"]
    manifest = folder / "manifest"
    if not manifest.exists():
        raise NotVerifiable(f"{name}: expected the list of its inputs in {manifest}, found none.")
    sample = compute_again(then, receipt["partition"], manifest, Drawing(rows, seed=seed))
    if sample.drawn and not len(_readable(sample)):
        raise NotVerifiable(f"{name}: every drawn input changed or is gone since the publish.")
    return _compared(result, then, sample)


def _readable(sample: ComputedAgain) -> pa.ChunkedArray:
    """Return the ids of the drawn source rows whose inputs are as they were."""
    types = sample.source_rows["__error_type"].cast(pa.string())
    mask = pc.is_in(types, value_set=pa.array(CHANGED))
    return sample.source_rows.filter(pc.invert(mask))["row_id"].cast(pa.string())


def _compared(result: Result, job: Job, sample: ComputedAgain) -> Verification:
    receipt, ids = result.receipt, _readable(sample)
    before, after = _rows_of(result.batches(), ids), _rows_of([sample.side.table], ids)
    tolerances: dict[str, float] = {}
    changes = _changes(before, after, job, tolerances)
    for row_id in _absent(before, after):
        failure = sample.side.quarantined.get(row_id)
        changes[row_id] = "is published, and " + (f"fails now: {failure}" if failure else "filtered now")
    changes |= dict.fromkeys(_not_published(result, job, before, after), "is not published")
    run = describe_run(job, receipt["partition"])
    reasons = []
    for sentence in changed_inputs(job, run, run.partition, receipt):
        count = sample.drawn - len(ids)
        reasons.append(f"{sentence}; {count:,} drawn rows of such files are not verified, and not in the bound")
    if changes:
        reasons += _explanations(result, run)
    differences = list(starmap(Difference, changes.items()))
    names = job.name, receipt["partition"], receipt["generation"]
    return Verification(*names, sample.total, sample.drawn, len(ids), differences, tolerances, reasons)


def _rows_of(tables: Iterable[pa.Table], sources: pa.ChunkedArray) -> pa.Table:
    """Return the rows that were made of source rows, with the ids of these as `__source`."""
    values = pa.array(sources.unique().to_pylist(), pa.string())
    parts = [NO_ROWS.append_column(SOURCE, NO_ROWS[0])]
    for table in tables:
        rows = table.append_column(SOURCE, table["row_id"].cast(pa.string()))
        for _ in range(LEVELS + 1):
            is_own = pc.is_in(rows[SOURCE], value_set=values)
            parts.append(rows.filter(is_own))
            rows = rows.filter(pc.invert(is_own))
            shorter = pc.replace_substring_regex(rows[SOURCE], r"[#.]\d+$", "")
            rows = rows.set_column(rows.num_columns - 1, SOURCE, shorter)
    tables_of_rows = list(filter(len, parts)) or parts[:1]
    return pa.concat_tables(tables_of_rows, promote_options="permissive")


def _absent(rows: pa.Table, others: pa.Table) -> list[str]:
    """Return the ids of source rows with a row that `others` lacks."""
    ids = others["row_id"].combine_chunks()
    return rows.filter(pc.invert(pc.is_in(rows["row_id"], value_set=ids)))[SOURCE].to_pylist()


def _not_published(result: Result, job: Job, before: pa.Table, after: pa.Table) -> set[str]:
    """Return source rows that are missing from the published rows, unless quarantined, or duplicates."""
    ids = set(_absent(after, before))
    steps = (*job.preprocess, *job.inference)
    if any(isinstance(step, PartitionStep) for step in steps):
        ids &= set(before[SOURCE].to_pylist())
    return ids - set(result.quarantine()["row_id"].to_pylist())


def _changes(before: pa.Table, after: pa.Table, job: Job, tolerances: dict[str, float]) -> dict[str, str]:
    """Return the source rows whose values differ, with the columns. Add the columns' tolerances."""
    ids = [rows["row_id"].cast(pa.string()) for rows in (before, after)]
    positions = pc.index_in(ids[0], value_set=ids[1])
    before, after = before.filter(positions.is_valid()), after.take(positions.drop_null())
    dtypes = [getattr(model, "dtype", None) for model in job.models]
    columns: dict[str, dict[str, None]] = {}
    omissions = {"row_id", "uri", SOURCE, *job.sink.partition_column.split(",")}
    for name in before.column_names:
        if name not in after.column_names or name in omissions:
            continue
        tolerances[name] = tolerance_of(after[name].type, dtypes)
        for number in differing(after[name], before[name], tolerances[name]):
            columns.setdefault(before[SOURCE][number].as_py(), {})[name] = None
    return {row_id: f"differs in {', '.join(names)}" for row_id, names in columns.items()}


def _recorded(job: Job, receipt: Mapping[str, Any], file: str) -> Job:
    """Return the job as the receipt records it. Secrets come from the job file: no receipt has them."""
    fingerprint = describe_run(job, receipt["partition"]).fingerprint
    if fingerprint == receipt["fingerprint"] or not receipt.get("settings"):
        return job
    now = job.model_dump(mode="json", exclude_none=True)
    return validated(file, _unmasked(receipt["settings"], now))


def _unmasked(then: Any, now: Any) -> Any:
    if isinstance(then, dict):
        now = now if isinstance(now, dict) else {}
        return {name: _unmasked(value, now.get(name)) for name, value in then.items()}
    if isinstance(then, list):
        values = now if isinstance(now, list) else []
        return [_unmasked(*pair) for pair in zip_longest(then, values[: len(then)])]
    return now if isinstance(then, str) and HIDDEN in then and now is not None else then


def _explanations(result: Result, run: Run) -> list[str]:
    """Return what could explain differences: changed files, other models or code, other libraries."""
    receipt = result.receipt
    sentences = [*_changed_files(result), *changed_settings(receipt, run)]
    numbers = versions()
    for name, version in receipt.get("versions", {}).items():
        if name not in NOT_COMPARED and numbers.get(name) != version:
            sentences.append(f"another {name}: {version} then, {numbers.get(name, 'none')} now")
    return sentences or [
        "statistics, models, code and libraries are those of the receipt: a few values changed, the "
        "machine is another, or the code does not give the same result twice"
    ]


def _changed_files(result: Result) -> Iterator[str]:
    """Yield a sentence if the published rows have other statistics than the receipt."""
    columns = summary(combine(map(describe, result.batches())), ())
    names = []
    for name, record in result.receipt.get("columns", {}).items():
        if any(not _equal(record.get(figure), columns.get(name, record).get(figure)) for figure in FIGURES):
            names.append(name)
    if names:
        yield f"the bytes of published files changed: the receipt has other statistics of {', '.join(names)}"


def _equal(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a == b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
