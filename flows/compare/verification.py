"""`overnight verify`: draw published rows, compute them again as their receipt records it, and compare.

The unit is a source row: what was published of it, one row, several or none, is what is computed of it now. The inputs
are those of the manifest, in its versions; a file that changed or is gone cannot be verified.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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

LEVELS = 3  # steps that make several rows of one, each of which appends to the row's id
SOURCE = "__source"
CHANGED = ("SourceChanged", "SourceVanished")
FIGURES = ("rows", "nulls", "mean", "min", "max", "standard_deviation")
NOT_COMPARED = ("commit", "overnight", "prefect", "prefect-ray", "ray")  # versions that compute nothing


class NotVerifiable(OvernightError):
    """The rows of a partition cannot be computed again, so nothing is known about them."""


@dataclass(frozen=True)
class Difference:
    """A source row whose published result is another than the one computed now, and in what."""

    row_id: str
    what: str


@dataclass(frozen=True)
class Verification:
    """The result. `checked` of `drawn` source rows could be computed again; the partition has `total`."""

    job: str
    partition: str
    generation: str
    total: int
    drawn: int
    checked: int
    differences: list[Difference]
    tolerances: dict[str, float] = field(default_factory=dict)  # of the compared columns
    reasons: list[str] = field(default_factory=list)  # what could explain differences

    @property
    def most(self) -> int:
        """Return how many source rows of the partition differ at most, at 95 %."""
        return most_that_differ(len(self.differences), self.checked, self.total)

    def as_json(self) -> dict[str, Any]:
        return {
            **{"job": self.job, "partition": self.partition, "generation": self.generation},
            **{"status": "differs" if self.differences else "verified", "rows_in": self.total},
            **{"rows_drawn": self.drawn, "rows_checked": self.checked, "rows_differing": len(self.differences)},
            **{"share_at_most": self.most / self.total if self.total else 0.0, "confidence": 0.95},
            **{"tolerances": self.tolerances, "reasons": self.reasons},
            "differences": [vars(difference) for difference in self.differences],
        }


def verify(
    job: Job, partition: str | None = None, rows: int = 300, seed: int = 0, file: str = "JOB.yaml"
) -> Verification:
    """Draw source rows of a published partition, compute them again as recorded, and compare the results.

    Raise `NotVerifiable` if the model draws at random, or if the record or all of the inputs are gone.
    """
    results = Results(job, file, job.published)
    result = results.result(results.partition(partition))
    receipt = result.receipt
    recorded = _recorded(job, receipt, file)
    for model in recorded.models:
        if isinstance(model, RemoteModel) and getattr(model, "draws", bool)():
            raise NotVerifiable(
                f"{job.name}: {model.shown_name()} draws its answers at random: expected temperature 0."
            )
    manifest = records_of_receipt(job, receipt) / "generations" / receipt["generation"] / "manifest"
    if not manifest.exists():
        raise NotVerifiable(f"{job.name}/{result.name}: expected the list of its inputs in {manifest}, found none.")
    again = compute_again(recorded, receipt["partition"], manifest, Drawing(rows, seed=seed))
    return _compared(result, recorded, again)


def _compared(result: Result, job: Job, again: ComputedAgain) -> Verification:
    receipt, sources = result.receipt, again.source_rows
    is_changed = pc.is_in(sources["__error_type"].cast(pa.string()), value_set=pa.array(CHANGED))
    readable = sources.filter(pc.invert(is_changed))["row_id"].cast(pa.string())
    if again.drawn and not len(readable):
        raise NotVerifiable(f"{job.name}/{result.name}: every drawn input changed or is gone since the publish.")
    published, computed = _rows_of(result.batches(), readable), _rows_of([again.side.table], readable)
    tolerances: dict[str, float] = {}
    changes = {**_missing(published, computed, again.side.quarantined), **_missing(computed, published, None)}
    changes |= _changes(published, computed, job, tolerances)
    for row_id in _not_published(result, job, computed, published):
        changes.pop(row_id, None)
    run = describe_run(job, receipt["partition"])
    reasons = list(_inputs(changed_inputs(job, run, run.partition, receipt), again.drawn - len(readable)))
    if changes:
        reasons += _explanations(result, run)
    return Verification(
        job.name,
        receipt["partition"],
        receipt["generation"],
        again.total,
        again.drawn,
        len(readable),
        list(starmap(Difference, changes.items())),
        tolerances,
        reasons,
    )


def _rows_of(tables: Iterable[pa.Table], sources: pa.ChunkedArray) -> pa.Table:
    """Return the rows that were made of these source rows, with the id of the source row as `__source`."""
    wanted, parts = pa.array(sources.unique().to_pylist(), pa.string()), [NO_ROWS.append_column(SOURCE, NO_ROWS[0])]
    for table in tables:
        ids = table["row_id"].cast(pa.string())
        for _ in range(LEVELS + 1):
            is_own = pc.is_in(ids, value_set=wanted)
            parts.append(table.append_column(SOURCE, ids).filter(is_own))
            table, ids = table.filter(pc.invert(is_own)), ids.filter(pc.invert(is_own))  # noqa: PLW2901
            ids = pc.replace_substring_regex(ids, r"[#.]\d+$", "")
    return pa.concat_tables([part for part in parts if len(part)] or parts[:1], promote_options="permissive")


def _missing(rows: pa.Table, others: pa.Table, failures: Mapping[str, str] | None) -> dict[str, str]:
    """Return source rows of `rows` that `others` lacks. `failures` are those of computing again, None for published."""
    absent = rows.filter(pc.invert(pc.is_in(rows["row_id"], value_set=others["row_id"].combine_chunks())))
    changes = {}
    for row_id in absent[SOURCE].to_pylist():
        changes[row_id] = "is not published" if failures is None else "is published, and filtered now"
        if failures and row_id in failures:
            changes[row_id] = f"is published, and fails now: {failures[row_id]}"
    return changes


def _changes(published: pa.Table, computed: pa.Table, job: Job, tolerances: dict[str, float]) -> dict[str, str]:
    """Return the source rows whose values differ, with the columns. The tolerances of the columns are added."""
    positions = pc.index_in(published["row_id"].cast(pa.string()), value_set=computed["row_id"].cast(pa.string()))
    before, now = published.filter(positions.is_valid()), computed.take(positions.drop_null())
    dtypes = [getattr(model, "dtype", None) for model in job.models]
    columns: dict[str, list[str]] = {}
    for name in before.column_names:
        if name not in computed.column_names or name in ("row_id", "uri", SOURCE, job.sink.partition_column):
            continue
        tolerances[name] = tolerance_of(now[name].type, dtypes)
        for number in differing(now[name], before[name], tolerances[name]):
            columns.setdefault(before[SOURCE][number].as_py(), []).append(name)
    return {row_id: f"differs in {', '.join(dict.fromkeys(names))}" for row_id, names in columns.items()}


def _not_published(result: Result, job: Job, computed: pa.Table, published: pa.Table) -> set[str]:
    """Return source rows that are computed now and were rightly not published: quarantined, or perhaps duplicates."""
    only_now = set(computed[SOURCE].to_pylist()) - set(published[SOURCE].to_pylist())
    if any(isinstance(step, PartitionStep) for step in (*job.preprocess, *job.inference)):
        return only_now
    return only_now & set(result.quarantine()["row_id"].to_pylist())


def _recorded(job: Job, receipt: Mapping[str, Any], file: str) -> Job:
    """Return the job as the receipt records it. Secrets, which no receipt has, come from the job file."""
    if describe_run(job, receipt["partition"]).fingerprint == receipt["fingerprint"] or not receipt.get("settings"):
        return job
    return validated(file, _unmasked(receipt["settings"], job.model_dump(mode="json", exclude_none=True)))


def _unmasked(then: Any, now: Any) -> Any:
    if isinstance(then, dict):
        now = now if isinstance(now, dict) else {}
        return {name: _unmasked(value, now.get(name)) for name, value in then.items()}
    if isinstance(then, list):
        values = now if isinstance(now, list) else []
        return [_unmasked(*pair) for pair in zip_longest(then, values[: len(then)])]
    return now if isinstance(then, str) and HIDDEN in then and now is not None else then


def _inputs(sentences: tuple[str, ...], unreadable: int) -> Iterator[str]:
    """Yield that inputs changed since the publish, and how many drawn rows were of such inputs."""
    for sentence in sentences:
        yield f"{sentence}; {unreadable:,} drawn rows are of such files: they are not verified, and not in the bound"


def _explanations(result: Result, run: Run) -> Iterator[str]:
    """Yield what could explain differences: changed files, other models or code, other libraries."""
    receipt, is_explained = result.receipt, False
    for sentence in (*_changed_files(result), *changed_settings(receipt, run)):
        is_explained = True
        yield sentence
    now = versions()
    for name, version in receipt.get("versions", {}).items():
        if name not in NOT_COMPARED and now.get(name) != version:
            is_explained = True
            yield f"another {name}: {version} then, {now.get(name, 'none')} now"
    if not is_explained:
        yield (
            "statistics, models, code and libraries are those of the receipt: a few values changed, the machine is "
            "another, or the code does not give the same result twice"
        )


def _changed_files(result: Result) -> Iterator[str]:
    """Yield a sentence if the statistics of the published rows are no longer those of the receipt."""
    receipt = result.receipt
    columns = summary(combine(map(describe, result.batches())), ())
    changes = []
    for name, record in receipt.get("columns", {}).items():
        now = columns.get(name, {})
        for figure in FIGURES:
            a, b = record.get(figure), now.get(figure)
            if a != b and not (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)):
                changes.append(name)
                break
    names = [name for name in changes if name in columns]
    if names:
        yield f"the bytes of published files changed: the receipt has other statistics of {', '.join(names)}"
