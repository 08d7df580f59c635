"""The decided step in a run: which rows it drops and which it refuses, and the keys that decide."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates import decision
from overnight.tasks.duplicates.places import FAILED, PLACES
from overnight.tasks.preprocess.decided_duplicates import Keys
from overnight.tasks.preprocess.run_steps import Steps
from overnight.tasks.preprocess.steps.deduplicate import Deduplicate
from overnight.tasks.preprocess.steps.explode import Explode
from overnight.tasks.rows import apply, blocks
from overnight.tasks.rows.blocks import FILTERED, LIVE, QUARANTINED
from overnight.tasks.state import lease
from overnight.tasks.workers.row_isolation import TOGETHER
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

WORDS = pa.table({"row_id": ["a#0", "a#1", "a#2"], "word": [["x", "y"], ["y"], ["z", "x", "v"]]})

BARRIER = Deduplicate(columns=["word"]).barrier(0, Steps((Explode(columns=["word"]),)))


def decided(tmp_path: Path, gone: list[tuple[int, int, int]], failed: list[int]) -> pa.Table:
    """The rows of the words after a step with these decisions."""
    run = make_run(tmp_path)
    tables = [pa.Table.from_pylist([dict(zip(PLACES.names, place, strict=True)) for place in gone], PLACES)]
    failures = pa.table({"unit": [7] * len(failed), "row": failed, "place": [FAILED] * len(failed)}, PLACES)
    decision.write(run.duplicates / "0", tables, failures)
    block = apply.apply(source_block(7, 0, WORDS), "preprocess", Explode(columns=["word"]).build())
    return apply.apply(block, "preprocess", BARRIER.work_on(block, run))


def test_a_decided_step_drops_single_rows_that_are_made_of_one(tmp_path: Path) -> None:
    done = decided(tmp_path, [(7, 1, 0), (7, 2, 0), (7, 2, 2)], [])
    assert done["__state"].to_pylist() == [LIVE, FILTERED, LIVE]
    assert blocks.live_rows(done)[0]["row_id"].to_pylist() == ["a#0.0", "a#0.1", "a#2.1"]


def test_a_row_that_failed_only_while_keys_were_made_fails_with_all_rows_made_of_it(tmp_path: Path) -> None:
    done = decided(tmp_path, [], [2])
    assert done["__state"].to_pylist() == [LIVE, LIVE, QUARANTINED]
    assert "this row failed when the rows were read for their keys" in done["__error_message"][2].as_py()


def test_keys_are_those_of_the_rows_after_the_steps_and_name_the_rows_that_failed(tmp_path: Path) -> None:
    words = WORDS.append_column("other", pa.array([["p", "q"], ["p", "q"], ["p", "q", "r"]]))
    rule = Deduplicate(columns=["word"]).rule
    steps = (Explode(columns=["word", "other"]),)
    tables = list(Keys(Steps(steps), rule).load(make_run(tmp_path)).on([source_block(7, 5, words)], TOGETHER))
    keys = pa.concat_tables(tables).to_pylist()
    assert [(key["unit"], key["row"], key["place"]) for key in keys] == [
        (7, 6, FAILED), (7, 5, 0), (7, 5, 1), (7, 7, 0), (7, 7, 1), (7, 7, 2),
    ]  # fmt: skip
    assert keys[1]["key"] == keys[4]["key"] != keys[2]["key"]
    assert keys[0]["key"] is None


def test_a_first_reading_decides_once_for_all_attempts(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with lease.held(run.ledger, run.attempt) as token:
        run = replace(run, token=token)
        assert not BARRIER.is_passed(run)
        sentence = BARRIER.take(run, BARRIER.stage.load(run).on([source_block(7, 0, WORDS)], TOGETHER))
    assert sentence.startswith("deduplicate: 2 of 6 rows are duplicates; the first reading took ")
    assert BARRIER.is_passed(replace(run, attempt="20260102T000000-later"))
    units, rows, places = np.full(6, 7), np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 0, 0, 1, 2])
    duplicates, failures = decision.judged(run.duplicates / "0", units, rows, places)
    assert (duplicates.tolist(), failures.any()) == ([False, False, True, False, True, False], False)
