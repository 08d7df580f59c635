"""A step whose results are remembered runs on unknown rows only, also if it makes several rows of one."""

from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.flows.job.pipeline import key_of
from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.memory.made_rows import store
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.preprocess.run_steps import LoadedSteps, Steps
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.result import Outcome, Work, several
from tests.tasks.blocks import numbered_block
from tests.tasks.runs import make_run

CALLS: list[list[int]] = []
BUILDS: list[str] = []
GENERATION = "20260102T000000-ffffff-aaaaaa"


class Noting(PreprocessStep):
    """Notes its rows. Rows with x of 7 fail."""

    can_be_remembered: ClassVar[bool] = True

    kind: Literal["noting"] = "noting"
    form: str = "one"

    def inputs(self) -> list[str]:
        return ["x"]

    def build(self) -> Work:
        BUILDS.append(self.kind)

        def work(table: pa.Table) -> Outcome:
            assert table.column_names == ["x"]
            numbers = table["x"].to_pylist()
            CALLS.append(numbers)
            failed = {row: RowError("seven") for row, x in enumerate(numbers) if x == 7}
            if self.form == "drops":
                return Outcome(keep=table["x"].to_numpy() > 3)
            if self.form == "one":
                return Outcome({"y": [10 * x for x in numbers]}, failed=failed)
            rows = [(row, n) for row, x in enumerate(numbers) for n in range(x % 3) if row not in failed]
            values = {"y": pa.array([10 * numbers[row] + n for row, n in rows], pa.int64())}
            if self.form == "replaces" and max(numbers) > 3:  # otherwise it leaves the column as it was
                values["x"] = pa.array([numbers[row] * (1 + 99 * (numbers[row] > 3)) for row, _ in rows], pa.int64())
            return several(values, [row for row, _ in rows], [n for _, n in rows], failed)

        return work


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear(), BUILDS.clear()


def worked(folder: Path, attempt: str, count: int = 9, form: str = "one", key: str = "k", **options: Any) -> tuple:
    """Return the block behind a step, the rows that the step got, and the number of known rows."""
    memory = ModelMemory(str(folder / "memory"), key * 32, "step 1 noting", 100_000, **options)
    step = Noting(form=form, remember=True).remembered(memory)
    run = make_run(folder, attempt=attempt)
    block = numbered_block(count, light=pa.array([f"l{n}" for n in range(count)]))
    result = rebatch.joined(Steps((step,)).load(run).on([block], None))
    known = store(result, f"{GENERATION}-{attempt}-000000")
    calls = sorted({x for call in CALLS for x in call})
    CALLS.clear()
    return (
        result.drop_columns([name for name in result.column_names if name.startswith(blocks.REMEMBERED)]),
        calls,
        known,
    )


def content(block: pa.Table) -> list[dict[str, Any]]:
    return blocks.live_rows(block)[0].to_pylist()


@pytest.mark.parametrize("form", ["one", "several"])
def test_a_second_run_runs_the_step_on_no_row_and_has_the_same_rows(form: str, tmp_path: Path) -> None:
    first, calls, known = worked(tmp_path, "a", form=form, count=7)
    assert (calls, known) == (list(range(7)), {})
    BUILDS.clear()
    again, calls, known = worked(tmp_path, "b", form=form, count=7)
    assert (calls, known, BUILDS) == ([], {"step 1 noting": 7}, [])
    assert content(again) == content(first) != []
    assert again["__state"].to_pylist() == first["__state"].to_pylist()


@pytest.mark.parametrize("form", ["one", "several", "replaces"])
def test_only_unknown_and_failed_rows_reach_the_step(form: str, tmp_path: Path) -> None:
    worked(tmp_path, "a", count=4, form=form)
    mixed, calls, known = worked(tmp_path, "b", form=form)
    assert (calls, known) == ([4, 5, 6, 7, 8], {"step 1 noting": 4})
    again, calls, _ = worked(tmp_path, "c", form=form)
    assert calls == [7], "a row that failed is not remembered"
    fresh, calls, _ = worked(tmp_path, "d", form=form, is_read=False)
    assert calls == list(range(9))
    assert content(mixed) == content(again) == content(fresh)
    assert mixed["__state"].to_pylist() == again["__state"].to_pylist() == fresh["__state"].to_pylist()


def test_another_key_runs_the_step_on_all_rows(tmp_path: Path) -> None:
    worked(tmp_path, "a")
    _, calls, known = worked(tmp_path, "b", key="m")
    assert (calls, known) == (list(range(9)), {})


def test_a_trial_takes_known_rows_and_leaves_none(tmp_path: Path) -> None:
    memory = ModelMemory(str(tmp_path / "memory"), "k" * 32, "step 1 noting", 100_000)
    steps = Steps((Noting(remember=True).remembered(memory),))
    tried = LoadedSteps(steps, make_run(tmp_path, attempt="a"), is_trial=True).tried(numbered_block(3))
    assert not [name for name in tried.column_names if name.startswith(blocks.REMEMBERED)]
    assert CALLS
    CALLS.clear()
    worked(tmp_path, "b", count=3)
    LoadedSteps(steps, make_run(tmp_path, attempt="c"), is_trial=True).tried(numbered_block(3))
    assert CALLS == []


def test_steps_that_cannot_be_remembered_are_refused_before_a_run_or_at_their_first_rows(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="expected a step that makes rows of each row by itself"):
        FilterRows(expression="x > 1", remember=True)
    with pytest.raises(ValidationError, match="expected no password_column beside it"):
        PdfText(password_column="p", remember=True)
    with pytest.raises(ContractError, match="step 1 noting: remember: expected a step that neither drops rows"):
        worked(tmp_path, "a", form="drops")


def test_files_of_a_tokenizer_count_and_a_name_on_the_hub_is_refused(tmp_path: Path) -> None:
    step = SplitText(tokenizer=str(tmp_path), remember=True)
    keys = set()
    for name, text in (("vocab.txt", "a"), ("vocab.txt", "b"), ("tokenizer_config.json", "{}")):
        (tmp_path / name).write_text(text)
        keys.add(key_of(step))
    assert len(keys) == 3
    with pytest.raises(JobError, match="expected a folder as tokenizer, whose files have versions, found a/b"):
        SplitText(tokenizer="a/b", remember=True).remembered(ModelMemory("/m", "k", "n", 1))


def test_chunks_of_texts_are_remembered_with_their_numbers(tmp_path: Path) -> None:
    memory = ModelMemory(str(tmp_path / "memory"), "k" * 32, "step 1 split_text", 100_000)
    step = SplitText(size=8, remember=True).remembered(memory)
    block = numbered_block(3, text=pa.array(["one two three", "", "four five six seven"]))
    results = []
    for attempt in ("a", "b"):
        run = make_run(tmp_path, attempt=attempt)
        results.append(rebatch.joined(Steps((step,)).load(run).on([block], None)))
        known = store(results[-1], f"{GENERATION}-{attempt}-000000")
    assert known == {"step 1 split_text": 3}
    assert content(results[0]) == content(results[1])
    assert [row["row_id"] for row in content(results[1])] == ["r0#0", "r0#1", "r2#0", "r2#1", "r2#2"]
