"""Settings of a chat model that each row has for itself, in its columns: the setting `by_row`."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from overnight.tasks.config.settings import AdjustableText, Settings
from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.messages import is_missing
from overnight.tasks.infer.predictor import Batch

MODEL = "model"
Column = Annotated[AdjustableText | None, Field(min_length=1)]


class ByRow(Settings):
    """The columns with settings of each row."""

    temperature: Annotated[Column, Field(description="The column with the temperature.")] = None
    top_p: Annotated[Column, Field(description="The column with the row's top_p.")] = None
    max_new_tokens: Annotated[Column, Field(description="The column with the longest answer.")] = None
    seed: Annotated[Column, Field(description="The column with the row's seed.")] = None
    model: Annotated[Column, Field(description="The column with one of by_row_models.")] = None

    def columns(self) -> dict[str, str]:
        """Return setting -> column."""
        return self.model_dump(exclude_none=True)


def values_of_row(
    by_row: ByRow, models: Sequence[str], row: Mapping[str, Any], settings: type[BaseModel]
) -> dict[str, Any]:
    """Return the settings that the row has a value for. Raise `RowError` for a wrong value."""
    own = {}
    for setting, column in by_row.columns().items():
        value = row[column].item() if isinstance(row[column], np.generic) else row[column]
        if is_missing(value):
            continue
        if setting == MODEL:
            own[setting] = _model(value, column, models)
        else:
            own[setting] = _number(value, column, setting, settings)
    return own


def rows_by_settings(
    by_row: ByRow, batch: Batch, settings: type[BaseModel]
) -> tuple[dict[tuple[tuple[str, Any], ...], list[int]], dict[int, RowError]]:
    """Return the numbers of a batch's rows by the settings that they have, and the errors of rows with wrong values."""
    rows: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    errors: dict[int, RowError] = {}
    for row in range(len(batch["row_id"])):
        values = {column: batch[column][row] for column in by_row.columns().values()}
        try:
            own = values_of_row(by_row, (), values, settings)
        except RowError as error:
            errors[row] = error
        else:
            rows.setdefault(tuple(own.items()), []).append(row)
    return rows, errors


def _model(value: Any, column: str, models: Sequence[str]) -> str:
    if value not in models:
        names = ", ".join(models)
        raise RowError(f"{column}: expected one of by_row_models ({names}), found {value!r:.80}.")
    return str(value)


def _number(value: Any, column: str, setting: str, settings: type[BaseModel]) -> Any:
    expected = f"{column}: expected a value for {setting}, found {value!r:.80}"
    try:
        number = _adapter(settings, setting).validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise RowError(f"{expected}: {problem}.") from None
    if not math.isfinite(number):
        raise RowError(f"{expected}.")
    return number


@cache
def _adapter(settings: type[BaseModel], setting: str) -> TypeAdapter[Any]:
    """Return the check of a setting, as the class has it for the job file."""
    field = settings.model_fields[setting]
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind)
