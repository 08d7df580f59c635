"""A few rows that passed the steps, and what they show about the columns that models read and add."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from overnight.tasks.errors import ContractError, did_you_mean
from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.chat.prompts import refuse_bytes
from overnight.tasks.infer.link import Link, heavy_columns
from overnight.tasks.rows import blocks
from overnight.tasks.storage.location import Location


def read_sample(location: Location) -> pa.Table:
    """Return the block of sample rows that the preprocessing trial wrote, without settled rows."""
    with location.open() as file:
        return blocks.live_block(pa.ipc.open_file(file.read()).read_all())


def bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Return the mean bytes of a source row without its heavy columns, except those in `keep`; 0 if there is no row."""
    light = blocks.without(sample, sorted(heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)))
    return blocks.live_rows(light)[0].nbytes / len(sample) if len(sample) else 0.0


def columns_made(
    sample: pa.Table, trials: Sequence[Trial | None], keep: Sequence[str], bytes_stay: bool = False
) -> pa.Schema | None:
    """Return the visible columns of rows after all models, or None if the sample does not show them."""
    if not len(sample) or None in trials:
        return None
    if trials and trials[-1]:
        behind = trials[-1].behind
        return blocks.live_rows(behind)[0].schema if len(behind) else None
    columns = blocks.live_rows(sample)[0].schema
    heavy = heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)
    return pa.schema([field for field in columns if field.name not in heavy])


def require_inputs(link: Link, sample: pa.Table) -> None:
    """Raise `ContractError` if the sample lacks a column that the model reads, or a prompt would have bytes in it."""
    rows = blocks.live_rows(sample)[0]
    names = rows.column_names
    for name in link.model.inputs() or ():
        if name not in names:
            raise ContractError(
                f"{link.label}: expected column {name!r}, found {', '.join(names)}{did_you_mean(name, names)}. "
                "Name the column in the model's settings, or make it before the model.",
                "infer",
            )
    for name in link.model.prompt_columns():
        refuse_bytes(f"{link.label}: {name}", rows[name])


def warnings_of_replaced(sample: pa.Table, links: Sequence[Link], trials: Sequence[Trial | None]) -> Iterator[str]:
    """Yield a sentence for each column that a model replaces, because the rows have a column of that name before."""
    for link, trial in zip(links, trials, strict=True):
        if trial is None:
            return
        earlier = blocks.live_rows(sample)[0].column_names
        for column in trial.columns.names:
            name = link.prefix + column
            if name in earlier:
                yield (
                    f"{link.label}: the model replaces the column {name!r}, which the rows have before it. To keep "
                    "both, rename that column before the model."
                )
        sample = trial.behind
