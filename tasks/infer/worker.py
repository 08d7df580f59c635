"""The worker of one model: a Ray actor that loads it once and runs it on every batch.

It hands the model only live rows and only the columns it reads, isolates rows on which it fails, prefixes its outputs
when there are several models, and drops heavy inputs behind the last one.
"""

import time

import pyarrow as pa

from tasks import arrays, quarantine_limit, rows
from tasks.errors import ContractError
from tasks.infer.predictor import Predictor
from tasks.run_directory import Run


class Worker:
    """Columns in: those that `predictor.inputs()` names. Columns out: what it returns, prefixed with `prefix`.

    drop_heavy: inputs such as images are dropped behind this worker, unless a prefix in `earlier` shows that a model
    made them, or `keep` names them.
    """

    def __init__(
        self, predictor: Predictor, run: Run, prefix: str, drop_heavy: bool, earlier: list[str], keep: list[str]
    ):
        self._predictor, self._run, self._prefix = predictor, run, prefix
        self._drop_heavy, self._earlier, self._keep = drop_heavy, tuple(earlier), set(keep)
        self._label = f"inference {predictor.name or predictor.kind}"  # type: ignore[attr-defined]
        self._made: set[str] = set()
        self._predict = predictor.load()

    def __call__(self, block: pa.Table) -> pa.Table:
        heavy = heavy_columns(block, self._earlier) - self._keep if self._drop_heavy else set()
        done = rows.apply(block, "infer", self._work)
        quarantine_limit.report(done, block, quarantine_limit.actor_name(self._run.generation, self._run.attempt))
        return done.drop_columns(sorted(heavy - self._made))

    def _work(self, live: pa.Table) -> rows.Outcome:
        wanted = self._predictor.inputs()
        for name in wanted or ():
            if name not in live.column_names:
                raise ContractError(
                    f"{self._label}: expected column {name!r}, found {', '.join(live.column_names)}. "
                    "Name the column in the model's settings, or make it in preprocess."
                )
        returned = rows.call(self._predict, live if wanted is None else live.select(wanted), "infer", self._label)
        columns = {self._prefix + name: values for name, values in returned.items()}
        self._made.update(columns)
        return rows.Outcome(columns)


def heavy_columns(block: pa.Table, earlier: tuple[str, ...] = ()) -> set[str]:
    """Columns too heavy to publish by default: bytes, and arrays of two or more dimensions that no model made."""
    heavy = set()
    for field in rows.visible(block).schema:
        if earlier and field.name.startswith(earlier):
            continue
        is_bytes = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
        if is_bytes or (field.type == arrays.TENSOR and _rank(block[field.name]) > 1):
            heavy.add(field.name)
    return heavy


def drop_heavy(block: pa.Table, keep: list[str]) -> pa.Table:
    """The block without its heavy columns, for jobs without a model."""
    return block.drop_columns(sorted(heavy_columns(block) - set(keep)))


def _rank(column: pa.ChunkedArray) -> int:
    """Dimensions of the first array; a column of nulls only counts as heavy, for nothing is lost with it."""
    for chunk in column.chunks:
        for cell in chunk.drop_null()[:1]:
            return len(cell["shape"])
    return 2


def try_model(predictor: Predictor, run: Run, sample: pa.Table) -> float | None:
    """Loads the model and runs `sample` through it, as the stage's worker would; seconds a row once warm.

    Rows that fail by themselves are skipped: None if all did. Raises `JobError` for a model that cannot be loaded and
    `ContractError` for one that breaks its contract.
    """
    worker = Worker(predictor, run, "", False, [], [])
    if not len(sample):
        return None
    for _ in range(2):
        started = time.perf_counter()
        done = worker(sample)
        seconds = time.perf_counter() - started
    live = int((done["__state"].to_numpy() == rows.LIVE).sum())
    return seconds / live if live else None
