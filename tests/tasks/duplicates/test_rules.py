"""Which rows are duplicates: the first in manifest order stays, whatever order the rows come in."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.duplicates import near
from overnight.tasks.duplicates.exact import Equal
from overnight.tasks.duplicates.near import Near
from overnight.tasks.duplicates.places import PLACES
from overnight.tasks.duplicates.rule import Rule, duplicates_in, keyed
from overnight.tasks.errors import ContractError

SENTENCE = "Every source row of the partition is settled exactly once, whichever process died at whichever moment. "
LONG = "".join(f"{number}. {SENTENCE}" for number in range(9))


def gone(rule: Rule, values: list[Any], kind: pa.DataType | None = None) -> list[int]:
    return np.flatnonzero(
        duplicates_in(pa.table({"x": pa.array(values, kind), "y": ["c"] * len(values)}), rule)
    ).tolist()


def test_of_equal_rows_the_first_stays_and_rows_without_a_value_stay() -> None:
    assert gone(Equal(("x",)), ["a", "b", None, "a", None, "", "a", ""]) == [3, 6, 7]


def test_several_columns_are_one_key_in_which_null_equals_null() -> None:
    assert gone(Equal(("x", "y")), ["a", None, "b", None, "a"]) == [3, 4]


def test_rows_of_the_partition_go_that_are_not_first_in_manifest_order() -> None:
    rng = np.random.default_rng(0)
    units, rows, places = (column.ravel() for column in np.meshgrid(range(4), range(50), range(3), indexing="ij"))
    values = rng.integers(0, 200, len(units))
    mixed = rng.permutation(len(units))
    tables = [
        keyed(pa.table({"x": pa.array(values[some], kind)}), Equal(("x",)), units[some], rows[some], places[some])
        for some, kind in zip(np.array_split(mixed, 3), (pa.int16(), pa.int64(), pa.float64()), strict=True)
    ]
    first = {value: place for place, value in reversed(list(enumerate(values.tolist())))}
    expected = [place for place, value in enumerate(values.tolist()) if first[value] != place]
    [found] = Equal(("x",)).duplicates(tables)
    assert found.schema == PLACES
    assert found.to_pydict() == {
        "unit": units[expected].tolist(),
        "row": rows[expected].tolist(),
        "place": places[expected].tolist(),
    }


def test_a_vector_goes_if_an_earlier_one_that_stays_points_its_way() -> None:
    angles = [0, 5, 10, 90, 12, 0]  # 5 goes for 0; 10 stays, because only 5 is near and goes; 12 goes for 10
    vectors = [[3 * np.cos(np.radians(angle)), 3 * np.sin(np.radians(angle))] for angle in angles]
    rule = Near("x", float(np.cos(np.radians(6))))
    assert gone(rule, vectors) == [1, 4, 5]
    assert gone(rule, vectors, pa.list_(pa.float32(), 2)) == [1, 4, 5]


def test_vectors_of_one_direction_are_near_at_the_highest_threshold() -> None:
    vectors = np.random.default_rng(3).normal(size=(200, 384))
    assert gone(Near("x", 1.0), [*vectors.tolist(), *(vectors * 7).tolist()]) == list(range(200, 400))


def test_vectors_without_a_direction_stay() -> None:
    vectors = [[1, 0], None, None, [0, 0], [0, 0], [np.nan, 1], [np.nan, 1], [1, None], [1, None], [1, 0]]
    assert gone(Near("x", 0.9), vectors, pa.list_(pa.float64())) == [9]


def test_many_vectors_are_compared_as_one_by_one() -> None:
    rng = np.random.default_rng(1)
    vectors = np.repeat(rng.normal(size=(300, 8)), 10, axis=0)[rng.permutation(3000)]
    vectors += rng.normal(size=vectors.shape) * 0.15
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    kept: list[int] = []
    for row in range(len(unit)):
        if not kept or (unit[kept] @ unit[row]).max() < 0.95:
            kept.append(row)
    assert 300 < len(kept) < 2500
    assert gone(Near("x", 0.95), vectors.tolist()) == sorted({*range(len(unit))} - {*kept})


def test_texts_go_that_share_most_of_an_earlier_text() -> None:
    pytest.importorskip("datasketch")
    texts = [LONG, SENTENCE, None, LONG.upper().replace(" ", " \n"), f"{LONG} The end.", LONG[:300], "", SENTENCE, ""]
    assert gone(Near("x", 0.9), texts) == [3, 4, 7]
    assert gone(Near("x", 1.0), texts) == [3, 7]


def test_signatures_of_texts_are_the_same_in_every_release() -> None:
    pytest.importorskip("datasketch")
    [key] = Near("x", 0.9).keys(pa.table({"x": [SENTENCE]})).to_pylist()
    assert len(key) == 1 + 4 * 128
    assert np.frombuffer(key[1:], np.uint32)[:3].tolist() == [63321431, 51551237, 5776]


def test_texts_at_the_threshold_are_nearly_all_found() -> None:
    pytest.importorskip("datasketch")
    rng = np.random.default_rng(2)
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 9)) for _ in range(4000)]
    texts = [" ".join(rng.choice(words, 60)) for _ in range(150)]
    copies = [" ".join([*text.split()[:58], *rng.choice(words, 2)]) for text in texts]  # about 0.93 alike
    found = gone(Near("x", 0.8), [*texts, *copies])
    assert all(row >= len(texts) for row in found)
    assert len(found) >= 149


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], "expected texts or lists of numbers in column 'x', found int64"),
        ([[1.0], [1.0, 2.0]], "expected vectors of one length in column 'x', found 1 and 2 numbers"),
    ],
)
def test_columns_that_have_no_similarity_are_refused(values: list[Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        gone(Near("x", 0.9), values)


def test_more_keys_than_memory_may_hold_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "MOST_BYTES", 1000)
    with pytest.raises(ContractError, match=r"found more after 200 rows\. Drop equal rows first"):
        gone(Near("x", 0.9), [[float(row), 1.0] for row in range(200)])


def test_a_column_of_texts_in_some_files_and_vectors_in_others_is_refused() -> None:
    pytest.importorskip("datasketch")
    rule, zeros = Near("x", 0.9), np.zeros(1, np.int64)
    tables = [
        keyed(pa.table({"x": [value]}), rule, zeros + unit, zeros, zeros) for unit, value in enumerate(["a", [1.0]])
    ]
    with pytest.raises(ContractError, match="in column 'x', found both"):
        list(rule.duplicates(tables))
