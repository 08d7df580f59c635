"""The worker of one model: a Ray actor that loads it once and runs it on every batch.

It hands the model only live rows and only the columns it reads, isolates rows on which it fails, prefixes its outputs
when there are several models, and drops heavy inputs behind the last one.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tasks import arrays, rows, supervisor
from tasks.errors import ContractError
from tasks.faults import is_device_failure, is_out_of_memory
from tasks.guard import Guard
from tasks.infer.predictor import Predictor
from tasks.patiently import patiently
from tasks.run_directory import Run

CAREFUL_CALLS = 8  # of a worker started again: more than Ray Data has under way with one, and sends to it again


Prepare = Callable[[pa.Table], Iterator[pa.Table]]


class Worker:
    """Columns in: those that `predictor.inputs()` names. Columns out: what it returns, prefixed with `prefix`.

    drop_heavy: inputs such as images are dropped behind this worker, unless a prefix in `earlier` shows that a model
    made them, or `keep` names them.
    """

    def __init__(
        self,
        predictor: Predictor,
        run: Run,
        prefix: str,
        drop_heavy: bool,
        earlier: list[str],
        keep: list[str],
        pace: float = 0.0,
        is_trial: bool = False,
    ):
        self._predictor, self._run, self._prefix = predictor, run, prefix
        self._drop_heavy, self._earlier, self._keep = drop_heavy, tuple(earlier), set(keep)
        self._label = f"inference {predictor.name or predictor.kind}"  # type: ignore[attr-defined]
        self.guard = Guard(run, "infer", self._label, pace)
        self._careful_calls = CAREFUL_CALLS if not is_trial and _was_restarted() else 0
        if self._careful_calls:
            supervisor.report(run, "infer", f"{self._label}: a worker died and was started again")
        self._rows_at_once: int | None = None
        self._made: set[str] = set()
        self._predict = predictor.load()

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        careful = self._careful_calls > 0
        self._careful_calls -= careful
        for piece in rows.of_length(self.pieces(block), self._predictor.rows_per_call()):
            yield self.run(piece, careful)

    def pieces(self, block: pa.Table) -> Iterator[pa.Table]:
        """The rows to work on."""
        yield block

    def run(self, block: pa.Table, careful: bool) -> pa.Table:
        """`block` with the model's columns. careful: its rows may have killed a worker before."""
        heavy = heavy_columns(block, self._earlier) - self._keep if self._drop_heavy else set()
        done = self.guard.run(block, lambda piece: rows.apply(piece, "infer", patiently(self._work, "infer")), careful)
        supervisor.report_quarantined(done, block, self._run)
        return done.drop_columns(sorted((heavy - self._made).intersection(done.column_names)))

    def _work(self, live: pa.Table) -> rows.Outcome:
        """The model's columns for `live`, in calls as small as its memory asks for; only a row alone is to blame."""
        while True:
            size = min(self._rows_at_once or len(live), len(live))
            try:
                return rows.stacked([self.predict(live[start : start + size]) for start in range(0, len(live), size)])
            except Exception as error:
                if is_device_failure(error):
                    self.guard.end_process(error)
                if not is_out_of_memory(error) or size == 1:
                    raise
            self._rows_at_once = size // 2
            what = f"{self._label}: out of memory with {size} rows at once, {self._rows_at_once} from then on"
            supervisor.report(self._run, "infer", what)
            release_memory()

    @property
    def is_short_of_memory(self) -> bool:
        """Whether a call was too large for the device."""
        return self._rows_at_once is not None

    def predict(self, live: pa.Table) -> dict[str, arrays.Column]:
        """The model's columns for `live`, in one call. Raises what the model raises, and `ContractError`."""
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
        return columns


class PreparingWorker(Worker):
    """Also does the preprocessing of its rows: no pixel crosses from one process to another."""

    def __init__(self, prepare: Prepare, **settings: Any):
        super().__init__(**settings)
        self._prepare = prepare

    def pieces(self, block: pa.Table) -> Iterator[pa.Table]:
        return self._prepare(block)


def _was_restarted() -> bool:
    """Whether this process is an actor that Ray started again."""
    import ray

    context = ray.get_runtime_context() if ray.is_initialized() else None
    return bool(context and context.get_actor_id() and context.was_current_actor_reconstructed)


def release_memory() -> None:
    """Gives back what a failed call still holds, for the smaller ones that follow."""
    gc.collect()
    if torch := sys.modules.get("torch"):
        for device in (torch.cuda, torch.xpu, torch.mps):
            if device.is_available():
                device.empty_cache()


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
