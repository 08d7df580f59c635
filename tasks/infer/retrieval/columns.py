"""The parts that both kinds share: requests of a batch's rows, failures of rows, and columns of tokens and cost."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import RowError
from overnight.tasks.infer.endpoint.client import A, Body, Counted
from overnight.tasks.rows.tensors import Column

MILLION = 1_000_000
B = TypeVar("B")


def bodies_of(body: Callable[[int], B], rows: int) -> list[B | Exception]:
    """Return the body of each row's request, or the row's own `RowError`."""
    bodies: list[B | Exception] = []
    for row in range(rows):
        try:
            bodies.append(body(row))
        except RowError as error:
            bodies.append(error)
    return bodies


def holds(value: Callable[[Body, A], Any]) -> Callable[[Body, A], bool]:
    """Return a function that returns True if an answer has this value, which raises `RowError` otherwise."""

    def is_whole(body: Body, answer: A) -> bool:
        try:
            value(body, answer)
        except RowError:
            return False
        return True

    return is_whole


def failure(error: RowError, answer: Counted | Exception) -> RowError:
    """Return the failure of a row, with the tokens of its answer, which are paid and in no column."""
    if isinstance(answer, Exception) or answer.prompt_tokens is None:
        return error
    return RowError(f"{error} It took {answer.prompt_tokens} prompt tokens.")


def token_columns(tokens: Sequence[int | None], price: float | None) -> dict[str, Column]:
    """Return the columns `prompt_tokens`, and `cost` if a million tokens have a price."""
    counts = pa.array(tokens, pa.int64())
    if price is None:
        return {"prompt_tokens": counts}
    return {"prompt_tokens": counts, "cost": pc.multiply(counts, price / MILLION)}
