"""Steps as users write them."""

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


def twice(batch: Batch) -> dict[str, Any]:
    """Make two rows of each."""
    return {"copy": [[0, 1]] * len(batch["row_id"])}


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


def uneven(batch: Batch) -> dict[str, Any]:
    return {"letter": [["a"]] * len(batch["t"]), "place": [[0, 1]] * len(batch["t"])}


async def words_of(batch: Batch) -> list[Any]:
    return [_words(text) for text in batch["t"]]


async def _words(text: str) -> dict[str, Any]:
    if text == "r":
        raise ValueError("r is no word")
    return {"letter": (text for _ in range(2))}
