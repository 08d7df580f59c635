"""Text columns as lists of strings, plain or put into a prompt, with a clear error for the row that has none."""

from collections.abc import Iterable
from string import Formatter

from tasks.errors import RowError
from tasks.infer.predictor import Batch


def texts(values: Iterable[object], column: str) -> list[str]:
    """The values of `column` as strings; RowError for a null or for anything else than text."""
    found = list(values)
    for value in found:
        if not isinstance(value, str):
            what = "no value" if value is None else f"{type(value).__name__} {value!r:.80}"
            raise RowError(f"{column}: expected a text, found {what}.")
    return [str(value) for value in found]


def placeholders(prompt: str) -> list[str]:
    """The columns that `{column}` names in `prompt`. ValueError for anything but plain names in braces."""
    columns = []
    for _, name, layout, conversion in Formatter().parse(prompt):
        if name is not None:
            if not name or layout or conversion or set(name) & set(".["):
                raise ValueError(
                    f"prompt: expected column names in braces, found {{{name}}}; write {{{{ and }}}} for plain braces"
                )
            columns.append(name)
    return list(dict.fromkeys(columns))


def filled(prompt: str, batch: Batch) -> list[str]:
    """`prompt` with each row's values; RowError for a row that has no value in one of its columns."""
    columns = placeholders(prompt)
    rows = zip(*(batch[column].tolist() for column in columns), strict=True)
    return [prompt.format(**dict(zip(columns, _present(columns, row), strict=True))) for row in rows]


def _present(columns: list[str], row: tuple[object, ...]) -> tuple[object, ...]:
    for column, value in zip(columns, row, strict=True):
        if value is None:
            raise RowError(f"{column}: expected a value for the prompt, found none.")
    return row
