"""Texts for models: the values of a text column, or a template that is filled with the values of each row.

All templates (`prompt`, `system`, `user`) have one grammar. `{column}` is the row's value in that column, in the form
of `values_as_text.py`. `{{` and `}}` are plain braces. Braces contain only column names, without formats, attributes or
indices. A row without a value gets a clear error.
"""

from collections.abc import Iterable
from string import Formatter

from overnight.tasks.errors import RowError
from overnight.tasks.infer.predictor import Batch


def texts(values: Iterable[object], column: str) -> list[str]:
    """Return `values` as strings. Raise `RowError`, which names `column`, for a null or a value that is not a text."""
    found = list(values)
    for value in found:
        if not isinstance(value, str):
            what = "no value" if value is None else f"{type(value).__name__} {value!r:.80}"
            raise RowError(f"{column}: expected a text, found {what}.")
    return [str(value) for value in found]


def placeholders(template: str, setting: str = "prompt") -> list[str]:
    """Return the names of the columns that `template` has in braces, each once.

    Raise `ValueError`, which names `setting`, for anything but plain names in braces.
    """
    columns = []
    try:
        for _, name, layout, conversion in Formatter().parse(template):
            if name is not None:
                if not name or layout or conversion or set(name) & set(".["):
                    raise ValueError(f"found {{{name}}}")
                columns.append(name)
    except ValueError as error:
        raise ValueError(
            f"{setting}: expected column names in braces, {error}; write {{{{ and }}}} for plain braces"
        ) from None
    return list(dict.fromkeys(columns))


def filled(template: str, batch: Batch, setting: str = "prompt") -> list[str]:
    """Return for each row of `batch` the template with the row's values filled in.

    Raise `RowError` for a row without a value in one of the columns. `setting` names the template in messages.
    """
    columns = placeholders(template, setting)
    if not columns:
        return [template.format()] * len(next(iter(batch.values())))
    rows = zip(*(batch[column].tolist() for column in columns), strict=True)
    return [template.format(**dict(zip(columns, _present(columns, row, setting), strict=True))) for row in rows]


def _present(columns: list[str], row: tuple[object, ...], setting: str) -> tuple[object, ...]:
    for column, value in zip(columns, row, strict=True):
        if value is None:
            raise RowError(f"{column}: expected a value for the {setting}, found none.")
    return row
