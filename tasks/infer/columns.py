"""The columns that the models read, and the columns of the rows after the models."""

from collections.abc import Sequence

import pyarrow as pa

from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.heavy_columns import heavy_columns
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.rows import blocks
from overnight.tasks.rows.expressions.parser import Expression


def columns_made(
    sample: pa.Table, trials: Sequence[Trial | None], prefixes: Sequence[str], keep: list[str], bytes_stay: bool = False
) -> pa.Schema | None:
    """Return the columns of rows after all models; None if the sample does not show them."""
    if not len(sample) or None in trials:
        return None
    seen = blocks.live_rows(sample)[0]
    heavy = heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)
    fields = {field.name: field.type for field in seen.schema if field.name not in heavy}
    for trial, prefix in zip(trials, prefixes, strict=True):
        fields |= {prefix + field.name: field.type for field in trial.columns} if trial else {}
    return pa.schema(list(fields.items()))


def columns_read(models: Sequence[AnyPredictor]) -> list[str] | None:
    """Return the columns that the models read, or use to choose rows; None if one of them reads all columns."""
    names: list[str] = []
    for model in models:
        inputs = model.inputs()
        if inputs is None:
            return None
        names += [*inputs, *(Expression(model.where).columns if model.where else [])]
    return names
