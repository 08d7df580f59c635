"""The model's worker: batches of the size asked for, rows that it prepares itself, and the trial before the stream."""

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
import ray

from overnight.tasks.engine import segment as segment_module
from overnight.tasks.engine.passing_on import passed_on
from overnight.tasks.engine.segment import Segment, SegmentWorker
from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.errors import ContractError
from overnight.tasks.infer import trial as trial_module
from overnight.tasks.infer import worker as worker_module
from overnight.tasks.infer.engine_counters import EnginePredict
from overnight.tasks.infer.link import Link, drop_heavy
from overnight.tasks.infer.operators import strategy
from overnight.tasks.infer.predictor import Batch, Predict, Predictor
from overnight.tasks.infer.trial import ModelTrial, Trial
from overnight.tasks.infer.worker import ConcurrentTimer
from overnight.tasks.preprocess.run_steps import Steps
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.resources.plan import Pool
from overnight.tasks.rows import blocks, rebatch, result
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.row_isolation import RowIsolation
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run


class Counting(Predictor):
    """Adds the size of its batch. Calls of more than `most` rows are out of memory; each takes `seconds`."""

    kind: Literal["counting"] = "counting"
    most: int = 1000
    seconds: float = 0.0

    def load(self) -> Predict:
        def predict(batch: Batch) -> dict:
            count = len(batch["x"])
            if count > self.most:
                raise MemoryError(f"no room for {count} rows")
            time.sleep(self.seconds)
            return {"count": np.full(count, count), "sum": batch["x"] + 1}

        return predict


class Knowing(Predictor):
    """Names its failed rows: those with an odd x. `seen` is the number of rows that it got so far."""

    kind: Literal["knowing"] = "knowing"

    def load(self) -> Predict:
        asked: list[int] = []

        def predict(batch: Batch) -> result.Outcome:
            asked.extend(batch["x"].tolist())
            odd = {row: ValueError(f"{x} is odd") for row, x in enumerate(batch["x"]) if x % 2}
            return result.Outcome({"seen": [len(asked)] * len(batch["x"])}, failed=odd)

        return predict


class Meeting(Predictor):
    """Returns whether another call of the same process was running."""

    kind: Literal["meeting"] = "meeting"
    patience: float = 3.0

    def calls_at_once(self) -> int:
        return 2

    def load(self) -> Predict:
        together = threading.Barrier(2)

        def predict(batch: Batch) -> dict:
            try:
                together.wait(self.patience)
                has_met = True
            except threading.BrokenBarrierError:
                together.reset()
                has_met = False
            return {"met": [has_met] * len(batch["x"])}

        return predict


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> supervisor.Supervisor:
    """The supervisor of this process, in the place of Ray's actor."""
    state = supervisor.Supervisor()
    monkeypatch.setattr(supervisor, "emit", lambda run, event: state.on(event))
    return state


def block(count: int, **columns: Any) -> pa.Table:
    ids = [f"a#{row}" for row in range(count)]
    return source_block(0, 0, pa.table({"row_id": ids, "x": np.arange(count), **columns}))


def counts(tables: list[pa.Table]) -> list[int]:
    return [found for table in tables for found in table["count"].to_pylist()]


def done(worker: SegmentWorker, rows: int) -> pa.Table:
    """What a worker makes of so many rows, whose order it keeps."""
    made = rebatch.joined(worker(block(rows)))
    assert made["__row"].to_pylist() == list(range(rows))
    return made


def trial(model: Predictor, run: Run, rows: int = 8) -> Trial:
    found = ModelTrial(Link(model), run).on(block(rows), Link(model))
    assert isinstance(found, Trial)
    return found


@dataclass(frozen=True)
class ByThree(Stage):
    """Preprocesses three rows at a time."""

    label, counts_as = "by three", "preprocess"

    def load(self, run: Run) -> Loaded:
        return self.Ready(Steps((DeriveColumns(columns={"x": "x * 10"}),)).load(run))

    @dataclass(frozen=True)
    class Ready:
        steps: Loaded

        def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
            for table in blocks:
                yield from self.steps.on((table[start : start + 3] for start in range(0, len(table), 3)), isolation)


def worker_of(*stages: Stage, run: Run, **settings: bool) -> SegmentWorker:
    return SegmentWorker(Segment(stages, **settings), run)


def test_a_weight_reaches_no_model_and_what_is_large_goes_to_it_in_smaller_batches(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    [weighted] = passed_on([block(10)], 1000, 0)
    assert len(weighted) == 11
    worker = worker_of(Link(Counting(batch_size=8)), run=run)
    assert counts(list(worker(weighted))) == [8] * 8 + [2] * 2
    assert list(worker(weighted[10:])) == []
    monkeypatch.setattr(worker_module, "MOST_BYTES_AT_ONCE", block(10)[:6].nbytes)
    assert counts(list(worker(weighted))) == [4] * 8 + [2] * 2


@pytest.mark.parametrize(("most", "pieces"), [(1, 3), (2**20, 1)])
def test_results_are_passed_on_together_while_they_are_small(
    run: Run, monkeypatch: pytest.MonkeyPatch, most: int, pieces: int
) -> None:
    monkeypatch.setattr(segment_module, "BYTES_AT_ONCE", most)
    made = list(worker_of(Link(Counting(batch_size=4)), run=run)(block(10)))
    assert len(made) == pieces
    assert counts(made) == [4] * 8 + [2] * 2
    assert len(list(worker_of(Link(Counting(batch_size=4)), run=run, is_slow=True)(block(10)))) == 3


def test_rows_that_a_worker_prepares_come_in_batches_all_the_same(run: Run) -> None:
    made = done(worker_of(ByThree(), Link(Counting(batch_size=4)), run=run), 10)
    assert made["count"].to_pylist() == [4] * 8 + [2] * 2
    assert made["sum"].to_pylist() == [10 * x + 1 for x in range(10)]


@pytest.mark.parametrize(("slow_seconds", "rows"), [(60.0, [0, *range(8)]), (0.0, [0, 0])], ids=["fast", "slow"])
def test_a_slow_row_is_a_trial_of_its_own(
    run: Run, monkeypatch: pytest.MonkeyPatch, slow_seconds: float, rows: list[int]
) -> None:
    monkeypatch.setattr(trial_module, "SLOW_SECONDS", slow_seconds)
    rows_of_calls: list[int] = []

    class Noting(Counting):
        def load(self) -> Predict:
            predict = super().load()

            def noted(batch: Batch) -> Any:
                rows_of_calls.extend(batch["x"].tolist())
                return predict(batch)

            return noted

    measured = trial(Noting(), run)
    assert rows_of_calls == rows
    assert measured.behind["x"].to_pylist() == rows[1:]


def test_a_worker_finds_the_batch_that_pays_and_fits_and_its_trial_calls_the_model_with_the_sample_alone(
    run: Run, state: supervisor.Supervisor
) -> None:
    paying = trial(Counting(seconds=0.03), run)
    assert paying.seconds_a_row >= 0.03 / 8
    assert 50 * 2**20 < paying.memory < 8 * 2**30, "of this process"
    assert ModelTrial(Link(Counting()), run).on(block(0), Link(Counting())) is None
    assert state.snapshot("").batch_sizes == {}
    seen = counts(list(worker_of(Link(Counting(seconds=0.01)), run=run)(block(700))))
    assert list(dict.fromkeys(seen))[:4] == [16, 32, 64, 128]
    assert [seen.count(size) // size for size in (16, 32, 64)] == [3] * 3
    found = state.snapshot("").batch_sizes["counting"]
    assert found["rows"] == 128
    assert found["reason"].startswith("the search had not ended: 64 rows at a time took 0.")
    list(worker_of(Link(Counting(seconds=0.01, most=20)), run=run)(block(100)))
    assert state.snapshot("").batch_sizes["counting"] == {"rows": 16, "reason": "out of memory with 32 rows"}
    worker_of(Link(Counting(batch_size=4)), run=run)
    assert state.snapshot("").batch_sizes["counting"] == {"rows": 4, "reason": "from the job file"}


def test_the_trial_runs_a_model_whatever_its_condition_says(run: Run) -> None:
    for where in ("light_confidence < 0.5", "x > 100"):
        found = trial(Counting(batch_size=4, where=where), run)
        assert found.seconds_a_row > 0
        assert found.columns == pa.schema({"count": pa.int64(), "sum": pa.int64()})


def test_a_worker_with_a_device_reports_the_most_memory_that_it_took_there(
    run: Run, state: supervisor.Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = iter([10, 30, 30, 50])
    monkeypatch.setattr(worker_module, "peak_memory", lambda: next(peaks))
    list(worker_of(Link(Counting(batch_size=4)), run=run)(block(12)))
    assert state.snapshot("").device_memory is None
    list(worker_of(Link(Counting(batch_size=4, resources={"NPU": 1})), run=run)(block(12)))
    state.on(supervisor.DeviceMemoryTaken(20))  # of another worker
    assert state.snapshot("").device_memory == 30
    trial(Counting(batch_size=4, num_gpus=1), run)
    assert (state.snapshot("").device_memory, next(peaks)) == (30, 50)


class Engine(Predictor):
    """A model whose engine has counted `tokens` of each row that it got."""

    kind: Literal["engine"] = "engine"
    tokens: int = 3

    def load(self) -> Predict:
        rows: list[int] = []

        def predict(batch: Batch) -> dict:
            rows.extend(batch["x"].tolist())
            return {"y": batch["x"]}

        return EnginePredict(predict, lambda: {"generated_tokens": self.tokens * len(rows)})


def test_the_last_counters_of_each_engine_are_summed_by_model_and_those_of_a_trial_are_left_out(
    run: Run, state: supervisor.Supervisor
) -> None:
    trial(Engine(batch_size=4), run)
    assert state.snapshot("").engines == {}
    for tokens in (3, 5):  # two workers, whose calls follow each other within a second
        list(worker_of(Link(Engine(batch_size=4, tokens=tokens)), run=run)(block(12)))
    list(worker_of(Link(Engine(batch_size=4, name="other")), run=run)(block(12)))
    assert state.snapshot("").engines == {"engine": {"generated_tokens": 96}, "other": {"generated_tokens": 36}}


def test_a_batch_that_is_too_large_is_halved_for_good_and_each_halving_is_one_incident(
    run: Run, state: supervisor.Supervisor
) -> None:
    worker = worker_of(Link(Counting(batch_size=16, most=5)), run=run)
    assert counts([*worker(block(32)), *worker(block(16))]) == [4] * 48
    incidents = [(incident["what"].partition(": ")[2], incident["times"]) for incident in state.snapshot("").incidents]
    assert incidents == [
        ("out of memory with 16 rows at a time, 8 from then on", 1),
        ("out of memory with 8 rows at a time, 4 from then on", 1),
    ]


def test_heavy_columns_that_nothing_later_reads_are_left_out_by_name_except_bytes_of_a_table(run: Run) -> None:
    rows = block(2, photo=pa.array([b"a", None]), sound=[b"a", b"b"])

    def by_worker(**settings: bool) -> pa.Table:
        return next(worker_of(Link(Counting(batch_size=4), "first_", read=("sound",), **settings), run=run)(rows))

    assert blocks.visible(by_worker()).column_names == ["row_id", "x", "sound", "first_count", "first_sum"]
    for done_with in (by_worker, lambda **settings: drop_heavy(rows, ["sound"], **settings)):
        assert blocks.left_out(done_with()) == ["photo"]
        stays = done_with(bytes_stay=True)
        assert (blocks.visible(stays)["photo"].to_pylist(), blocks.left_out(stays)) == ([b"a", None], [])


def test_a_worker_with_a_device_has_two_calls_under_way_in_ray(ray_session: None, run: Run) -> None:
    dataset = ray.data.from_arrow([block(4)] * 6).map_batches(
        SegmentWorker,
        fn_constructor_kwargs={"segment": Segment((Link(Meeting()),)), "run": run},
        batch_size=4,
        batch_format="pyarrow",
        compute=strategy(Pool("model", 1, 1, 0.5, 0), Meeting().calls_at_once()),
        num_cpus=0.5,
    )
    assert dataset.to_pandas()["met"].sum() >= 8


def test_a_worker_that_was_started_again_makes_one_call_at_a_time(run: Run) -> None:
    for is_restarted in (False, True):
        segment = Segment((Link(Meeting(patience=0.3 if is_restarted else 10)),))
        worker = SegmentWorker(segment, run, is_restarted=is_restarted)
        with ThreadPoolExecutor(2) as threads:
            made = [list(tables) for tables in threads.map(lambda _, call=worker: list(call(block(4))), range(2))]
        met = {value for tables in made for table in tables for value in table["met"].to_pylist()}
        assert met == {not is_restarted}


def test_calls_at_once_share_the_time_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(worker_module.time, "perf_counter", lambda: now[0])
    clock = ConcurrentTimer()
    before = clock()
    now[0] += 5
    assert clock() - before == 5, "it goes on while no call is running"
    with clock.call():
        first = clock()
        now[0] += 1
        assert clock() - first == 1, "a call alone has all of its seconds"
        with clock.call():
            second = clock()
            now[0] += 4
            second = clock() - second
        now[0] += 2
        first = clock() - first
    assert (first, second) == (1 + 2 + 2, 2)


def test_a_row_that_does_not_meet_the_condition_gets_null_from_the_model(run: Run) -> None:
    made = done(worker_of(Link(Counting(batch_size=4, where="x % 3 == 0"), "heavy_"), run=run), 40)
    assert made["heavy_sum"].to_pylist() == [x + 1 if x % 3 == 0 else None for x in range(40)]
    # 14 rows of 40, which are taken 32 at a time: calls of 4, not of the one or two that four rows hold
    assert [count for count in made["heavy_count"].to_pylist() if count] == [4] * 8 + [3] * 3 + [3] * 3
    assert made["__state"].to_pylist() == [blocks.LIVE] * 40


@pytest.mark.parametrize(
    ("where", "sums"), [("10 // (x - 3) > 0", [None] * 4 + [5, 6, 7, 8]), ("10 // (x - 3) > 99", None)]
)
def test_a_condition_that_fails_for_a_row_quarantines_it_and_calls_the_model_once(
    run: Run, where: str, sums: list[int | None] | None
) -> None:
    made = done(worker_of(Link(Counting(batch_size=8, where=where)), run=run), 8)
    assert made["__state"].to_pylist() == [blocks.QUARANTINED if row == 3 else blocks.LIVE for row in range(8)]
    assert "Division by zero" in made["__error_message"][3].as_py()
    if sums:
        assert (made["sum"].to_pylist(), made["count"].to_pylist()) == (sums, [None] * 4 + [4] * 4)


def test_without_a_row_for_the_model_its_columns_are_null_in_the_types_of_the_trial(run: Run) -> None:
    model = Counting(batch_size=4, where="x > 100")
    made = done(worker_of(Link(model, "heavy_", columns=trial(model, run).columns), run=run), 10)
    assert made["heavy_sum"].equals(pa.chunked_array([pa.nulls(10, pa.int64())]))
    assert made["x"].to_pylist() == list(range(10))
    assert "sum" not in done(worker_of(Link(model), run=run), 10).column_names, "nothing showed its columns"


@pytest.mark.parametrize(("where", "reason"), [("y > 1", "needs a column 'y'"), ("x + 1", "expected true or false")])
def test_a_condition_over_a_column_that_is_missing_or_without_a_truth_value_is_refused(
    run: Run, where: str, reason: str
) -> None:
    with pytest.raises(ContractError, match=reason) as raised:
        list(worker_of(Link(Counting(where=where)), run=run)(block(4)))
    assert raised.value.stage == "infer"


@pytest.mark.parametrize("where", [None, "x >= 5"])
def test_rows_that_a_model_knows_to_have_failed_cost_no_other_row_a_second_call(run: Run, where: str | None) -> None:
    made = done(worker_of(Link(Knowing(batch_size=4, where=where)), run=run), 12)
    failed = [x for x in range(12) if x % 2 and (where is None or x >= 5)]
    states = made["__state"].to_pylist()
    assert [row for row, state in enumerate(states) if state == blocks.QUARANTINED] == failed
    assert [made["__error_message"][x].as_py() for x in failed] == [f"{x} is odd" for x in failed]
    assert max(seen for seen in made["seen"].to_pylist() if seen) == (12 if where is None else 7)
