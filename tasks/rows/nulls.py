"""Columns as Python values, in which None is a missing value."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def present(values: Iterable[T | None]) -> list[T]:
    """Return the values that are not missing."""
    return [value for value in values if value is not None]


def map_present(convert: Callable[[Any], T], values: Iterable[Any]) -> list[T | None]:
    """Convert each value that is not missing. A missing one stays missing."""
    return [None if value is None else convert(value) for value in values]
