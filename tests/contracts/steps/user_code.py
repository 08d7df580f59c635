"""Steps as users write them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

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


RETURNED: Any = []


def returns(batch: Batch) -> dict[str, Any]:
    """Return the values that a test has put there, for rows that may run alone."""
    if len(batch["number"]) == 3:
        return {"made": RETURNED}
    return {"made": [RETURNED[int(name.removeprefix("file"))] for name in batch["row_id"]]}


class Scale:
    """Multiplies by a number that it is made with."""

    made = 0

    def __init__(self, by: int) -> None:
        Scale.made += 1
        self.by = by

    def __call__(self, batch: Batch) -> Batch:
        batch["x"] = np.array([None if value is None else value * self.by for value in batch["x"]])
        return batch


class NoCall:
    """Cannot be called."""


class Refuses:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")


def shout(batch: Batch, end: str = "!") -> dict[str, Any]:
    return {"shouted": [text.upper() + end for text in batch["t"]]}


def three_each(batch: Batch) -> dict[str, Any]:
    return {"letter": np.array([["x", "y", "z"]] * len(batch["t"]))}


def uneven(batch: Batch) -> dict[str, Any]:
    return {"letter": [["a"]] * len(batch["t"]), "place": [[0, 1]] * len(batch["t"])}


async def words_of(batch: Batch) -> list[Any]:
    return [_words(text) for text in batch["t"]]


async def _words(text: str) -> dict[str, Any]:
    if text == "r":
        raise ValueError("r is no word")
    return {"letter": (text for _ in range(2))}
