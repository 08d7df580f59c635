"""An attempt at a partition without Prefect and Ray: lease, repair, staging of what is not settled, publish.

It calls the same functions as a run, in the same order. Its tries are those of a Prefect task: the next one repairs
what the last one left, and goes on from its parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from overnight.flows.runs.run import refuse_foreign_files, refuse_other_job
from overnight.tasks.errors import CheckFailed
from overnight.tasks.state import lease, row_ranges, staged_parts
from overnight.tasks.state.run import Run, published_files, read_json
from overnight.tasks.write.publish.publish import prepared, publish, repair
from overnight.tasks.write.sink import Sink
from tests.contracts.sinks.publications import (
    NO_ERRORS,
    columns_of,
    kept_of,
    receipt_of,
    records_of,
    stage,
    undo_held,
)

ROWS_A_PART = 2


@dataclass(frozen=True)
class Work:
    """The numbers to publish. With `kept` they join the published ones; with `refused` a check refuses them.

    With `as_staged`, each part is a file of the publish, as it is. With `undo`, they were published as g000 before.
    """

    numbers: Sequence[int]
    kept: Sequence[int] = ()
    refused: bool = False
    as_staged: bool = False
    undo: bool = False


def attempt(run: Run, sink: Sink, kind: str, work: Work, tries: int = 1) -> None:
    """Publish the rows as a run does, whatever an earlier attempt left."""
    with lease.held(run.ledger, run.attempt) as token:
        for number in range(tries):
            held = replace(run, token=token, attempt=f"{run.attempt}{number}")
            try:
                _try(held, sink, kind, work)
                return
            except CheckFailed:
                raise
            except Exception:
                if number + 1 == tries:
                    raise


def _try(run: Run, sink: Sink, kind: str, work: Work) -> None:
    refuse_other_job(run)
    repair(run, sink)
    published = read_json(run.ledger / "receipt.json")
    if published and published["generation"] == run.generation:
        return
    refuse_foreign_files(run, sink)
    if work.undo:
        undo_held(run, sink, "g000")
        return
    _stage_rest(run, kind, work)
    kept = kept_of(published_files(published), columns_of(kind, list(work.kept))) if work.kept else None
    with prepared(run, sink, *records_of(run), kept) as ready:
        if work.refused:
            raise CheckFailed("refused by a check")
        publish(run, sink, ready, NO_ERRORS, receipt_of(run, sink, ready))


def settled(run: Run) -> int:
    """The number of rows that whole parts have."""
    return sum(record.rows for record in staged_parts.read_records(run.parts))


def _stage_rest(run: Run, kind: str, work: Work) -> None:
    """Stage the rows that no part has, one part after another."""
    first = len(work.kept)
    records, merged = records_of(run)
    done = row_ranges.inside(np.zeros(len(work.numbers), int), first + np.arange(len(work.numbers)), merged)
    assert int(done.sum()) == sum(record.rows for record in records), "a part of an earlier attempt is lost"
    for start in range(int(done.sum()), len(work.numbers), ROWS_A_PART):
        numbers = list(work.numbers[start : start + ROWS_A_PART])
        part = replace(run, attempt=f"{run.attempt}-{start}")
        stage(part, columns_of(kind, numbers), first=first + start)
