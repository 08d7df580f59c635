"""Steps as users write them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

Batch = dict[str, np.ndarray]


def letters(batch: Batch) -> dict[str, Any]:
    """Return a list for each row, to explode; a row without a word has no letters."""
    if any(word == "fails" for word in batch["word"]):
        raise ValueError("no such word")
    return {
        "letter": [list(word or "") for word in batch["word"]],
        "length": [len(word or "") for word in batch["word"]],
    }


class Refills:
    """Gives the same array with each batch, filled again."""

    def __init__(self) -> None:
        self.held = np.zeros(1000, np.int64)

    def __call__(self, batch: Batch) -> dict[str, Any]:
        view = self.held[: len(batch["number"])]
        view[:] = batch["number"] * 10
        return {"made": view}


def yields_the_same_dict(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield one dict for all rows, changed between."""
    row: dict[str, Any] = {}
    for number in batch["number"].tolist():
        row["made"] = number * 10
        yield row


def yields_the_same_array(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield pieces in one array, filled again for each piece."""
    held = np.zeros(1, np.int64)
    for number in batch["number"]:
        held[0] = number * 10
        yield {"made": held}


def yields_the_same_list(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield rows whose value is one list, filled again."""
    held: list[int] = []
    for number in batch["number"].tolist():
        held[:] = [number * 10]
        yield {"made": held}


def lists_one_array(batch: Batch) -> dict[str, Any]:
    """Return rows that are views of one array, which is not changed any more."""
    held = np.zeros((len(batch["number"]), 1), np.int64)
    rows = []
    for row, number in enumerate(batch["number"]):
        held[row] = number * 10
        rows.append(held[row])
    return {"made": rows}


KINDS: dict[str, Callable[[int], Any]] = {
    "masked integers": lambda count: np.ma.masked_array(np.arange(count), np.arange(count) % 2 == 1),
    "masked floats": lambda count: np.ma.masked_array(np.arange(count) / 2, np.arange(count) % 2 == 1),
    "masked texts": lambda count: np.ma.masked_array(np.array(list("abcdefgh"[:count])), np.arange(count) % 2 == 1),
    "masked booleans": lambda count: np.ma.masked_array(np.ones(count, bool), np.arange(count) % 2 == 1),
    "masked times": lambda count: np.ma.masked_array(
        np.arange(count).astype("datetime64[ns]"), np.arange(count) % 2 == 1
    ),
    "masked objects": lambda count: np.ma.masked_array(
        np.array(list("abcdefgh"[:count]), object), np.arange(count) % 2 == 1
    ),
    "list of masked": lambda count: [np.ma.masked if row % 2 else row for row in range(count)],
    "pandas Int64": lambda count: pd.array([None if row % 2 else row for row in range(count)], "Int64"),
    "pandas NA objects": lambda count: pd.Series([pd.NA if row % 2 else row for row in range(count)], dtype=object),
    "pandas boolean": lambda count: pd.array([None if row % 2 else True for row in range(count)], "boolean"),
    "pandas string": lambda count: pd.array([None if row % 2 else "a" for row in range(count)], "string"),
    "pandas NaT": lambda count: pd.Series([pd.NaT if row % 2 else pd.Timestamp(row) for row in range(count)]),
    "pandas categories": lambda count: pd.Series([None if row % 2 else "a" for row in range(count)], dtype="category"),
    "NumPy NaT": lambda count: np.array(["NaT" if row % 2 else row for row in range(count)], "datetime64[ns]"),
}


def with_nulls(batch: Batch, values: str) -> dict[str, Any]:
    """Return a column whose odd rows have no value."""
    return {"made": KINDS[values](len(batch["number"]))}


def twice(batch: Batch) -> dict[str, Any]:
    """Make two rows of each."""
    return {"copy": [[0, 1]] * len(batch["row_id"])}


class RefillsPictures:
    """Gives the same pictures with each batch, filled again."""

    def __init__(self) -> None:
        self.held = np.zeros((1000, 2, 2, 3), np.uint8)

    def __call__(self, batch: Batch) -> dict[str, Any]:
        view = self.held[: len(batch["number"])]
        view[:] = (batch["number"] * 10).reshape(-1, 1, 1, 1)
        return {"made": view}


RETURNED: list[Any] = []


def returns(batch: Batch) -> dict[str, Any]:
    """Return the values that a test has put there, for rows that may run alone."""
    if len(batch["number"]) == len(RETURNED):
        return {"made": list(RETURNED)}
    return {"made": [RETURNED[int(name.removeprefix("file"))] for name in batch["row_id"]]}
