"""The columns that rows have after all models, and the checks of the columns that a model reads and adds."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from overnight.tasks.errors import ContractError, did_you_mean
from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.chat.prompts import refuse_bytes
from overnight.tasks.infer.heavy_columns import heavy_columns
from overnight.tasks.infer.link import Link
from overnight.tasks.rows import blocks


def columns_made(
    sample: pa.Table, trials: Sequence[Trial | None], keep: Sequence[str], bytes_stay: bool = False
) -> pa.Schema | None:
    """Return the names and types of rows' visible columns after all models, or None if the sample does not show them.

    `sample` is a block of rows before the models. `trials` has one result per model, None if no row passed. Without
    models, columns of bytes and arrays of two or more dimensions are left out, except those in `keep`. If `bytes_stay`
    is True, columns of bytes stay, too.
    """
    if not len(sample) or None in trials:
        return None
    if trials and trials[-1]:
        behind = trials[-1].behind
        return blocks.live_rows(behind)[0].schema if len(behind) else None
    seen = blocks.live_rows(sample)[0].schema
    heavy = heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)
    return pa.schema([field for field in seen if field.name not in heavy])


def require_inputs(link: Link, sample: pa.Table) -> None:
    """Raise `ContractError` if the block `sample` lacks a column that the link's model reads.

    The message suggests a column of a similar name. Raise it also for a column of bytes or images in a prompt.
    """
    rows = blocks.live_rows(sample)[0]
    found = rows.column_names
    for name in link.model.inputs() or ():
        if name not in found:
            raise ContractError(
                f"inference {link.model.name or link.model.kind}: expected column {name!r}, found {', '.join(found)}"
                f"{did_you_mean(name, found)}. Name the column in the model's settings, or make it before the model.",
                "infer",
            )
    for name in link.model.prompt_columns():
        refuse_bytes(f"inference {link.model.name or link.model.kind}: {name}", rows[name])


def warnings_of_replaced(sample: pa.Table, links: Sequence[Link], trials: Sequence[Trial | None]) -> Iterator[str]:
    """Yield a sentence for each column that a model replaces, because the rows have a column of that name before.

    `sample` is a block of rows before the models. `trials` has one result per model, None if no row passed.
    """
    for link, trial in zip(links, trials, strict=True):
        if trial is None:
            return
        there = blocks.live_rows(sample)[0].column_names
        for name in (link.prefix + made for made in trial.columns.names):
            if name in there:
                yield (
                    f"inference {link.model.name or link.model.kind}: the model replaces the column {name!r}, which "
                    "the rows have before it. To keep both, rename that column before the model."
                )
        sample = trial.behind
