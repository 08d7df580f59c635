"""Damaged files, drawn from a corpus, at every reader, decoder and parser: rows or the project's own words come out.

No file makes a reader raise anything else, hang for 5 s or hold 512 MiB. The files are drawn from a fixed seed, each
night from another one. A failure names its seed and number; `tests/fuzz/hunt.py` says how to replay it. Hypothesis does
not draw them: a file that kills or stalls its process cannot be shrunk inside it.
"""

from collections.abc import Iterator

import pytest

from tests.chaos import moments
from tests.contracts.sources.suite import SOURCES
from tests.contracts.steps.suite import STEPS
from tests.fuzz.hunt import Child, Tally
from tests.fuzz.mutations import Sample, damaged
from tests.fuzz.targets import FOUND, makers

FILES, FILES_A_NIGHT = 100, 10_000
TARGETS = sorted(makers())
# steps that see columns, and no bytes of a format
NO_DECODERS = {
    *("select_columns", "drop_columns", "rename_columns", "explode", "crop_boxes", "deduplicate"),
    *("filter_rows", "derive_columns", "python"),
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as child:
        yield child


@pytest.fixture(scope="module")
def narrow() -> Iterator[Child]:
    """With limits that a test reaches soon."""
    with Child(seconds=2, most_bytes=32 * 2**20) as child:
        yield child


def assert_no_fault(tally: Tally, count: int) -> None:
    print(tally)
    assert not tally.faults, "\n\n".join([str(tally), *tally.faults])
    assert sum(tally.outcomes.values()) == count


def test_each_source_and_each_step_that_decodes_is_a_target() -> None:
    kinds = SOURCES.kinds - {"job"} | STEPS.kinds - NO_DECODERS
    assert kinds - {name.partition("-")[0] for name in TARGETS} == set()


@pytest.mark.parametrize("target", TARGETS)
def test_a_damaged_file_gives_rows_or_a_reason_in_the_project_s_own_words(target: str, child: Child) -> None:
    assert_no_fault(child.hunt(target, 0, 0, FILES), FILES)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", TARGETS)
def test_ten_thousand_files_a_night_are_read_or_refused(target: str, child: Child) -> None:
    assert_no_fault(child.hunt(target, moments.seed(), 0, FILES_A_NIGHT), FILES_A_NIGHT)


@pytest.mark.parametrize("target", sorted(folder.name for folder in FOUND.glob("*")))
def test_what_was_a_fault_once_is_none_any_more(target: str, child: Child) -> None:
    assert_no_fault(child.again(target), len(list((FOUND / target).glob("*"))))


def test_a_reader_that_raises_anything_else_is_found(narrow: Child) -> None:
    tally = narrow.hunt("raises", 0, 0, 2000)
    assert tally.outcomes["read"]
    assert "KeyError: 'a key that nobody expected'" in tally.faults[0]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("hangs", "hang: no answer within 2 s"),
        ("grows", "memory: "),
        ("holds", "memory: "),
        ("dies", "died: exit code -6"),
    ],
)
def test_a_reader_that_ends_its_process_is_found_with_the_file_that_it_was_at(
    target: str, words: str, narrow: Child
) -> None:
    tally = narrow.hunt(target, 0, 7, 1)
    assert tally.faults[0].startswith(f"{target}, seed 0, file 7: {words}")


def test_the_same_seed_and_number_give_the_same_damage() -> None:
    samples = [Sample("a", bytes(range(256))), Sample("b", b"123,456\n" * 9)]
    first = [damaged(samples, "7", number) for number in range(300)]
    assert first == [damaged(samples, "7", number) for number in range(300)]
    assert first != [damaged(samples, "8", number) for number in range(300)]
    changed = [one for one in first if one.content not in {sample.content for sample in samples}]
    assert len(changed) > 250
