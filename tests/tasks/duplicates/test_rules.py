"""Which rows are duplicates: the first in manifest order stays, whatever order the rows come in."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.duplicates import near
from overnight.tasks.duplicates import vectors as vectors_module
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
    assert gone(Equal(("x", "y")), ["a", None, "b", None, "a"]) == [3, 4], "in several columns null equals null"


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


def test_vectors_of_one_direction_are_near_and_those_without_one_stay() -> None:
    vectors = np.random.default_rng(3).normal(size=(50, 384))
    assert gone(Near("x", 1.0), [*vectors.tolist(), *(vectors * 7).tolist()]) == list(range(50, 100))
    odd = [[1, 0], None, None, [0, 0], [0, 0], [np.nan, 1], [np.nan, 1], [1, None], [1, None], [1, 0]]
    assert gone(Near("x", 0.9), odd, pa.list_(pa.float64())) == [9]


def test_many_vectors_are_compared_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "ROWS_AT_ONCE", 300)
    monkeypatch.setattr(vectors_module, "KEPT_AT_ONCE", 70)
    rng = np.random.default_rng(1)
    vectors = np.repeat(rng.normal(size=(100, 8)), 10, axis=0)[rng.permutation(1000)]
    vectors += rng.normal(size=vectors.shape) * 0.15
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    kept: list[int] = []
    for row in range(len(unit)):
        if not kept or (unit[kept] @ unit[row]).max() < 0.95:
            kept.append(row)
    assert 100 < len(kept) < 900
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
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 9)) for _ in range(2000)]
    texts = [" ".join(rng.choice(words, 60)) for _ in range(60)]
    copies = [" ".join([*text.split()[:58], *rng.choice(words, 2)]) for text in texts]  # about 0.93 alike
    found = gone(Near("x", 0.8), [*texts, *copies])
    assert all(row >= len(texts) for row in found)
    assert len(found) >= 59


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([[1, 2]], "expected texts or lists of numbers in column 'x', found int64"),
        ([[[1.0], [1.0, 2.0]]], "expected vectors of one length in column 'x', found 1 and 2 numbers"),
        ([["a"], [[1.0]]], "in column 'x', found both"),
        ([[[float(row), 1.0] for row in range(200)]], r"found more after 200 rows\. Drop equal rows first"),
    ],
    ids=["numbers", "lengths", "texts and vectors", "more than memory may hold"],
)
def test_what_has_no_similarity_is_refused(
    tables: list[list[Any]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasketch")
    monkeypatch.setattr(near, "MOST_BYTES", 1000)
    rule = Near("x", 0.9)
    with pytest.raises(ContractError, match=message):
        list(rule.duplicates(keyed(pa.table({"x": values}), rule, *units_of(values)) for values in tables))


def units_of(values: list[Any]) -> list[np.ndarray]:
    return [np.zeros(len(values), np.int64), np.arange(len(values)), np.zeros(len(values), np.int64)]
