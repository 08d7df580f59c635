"""Refuse a run whose target holds results of another job, or files that Overnight did not write.

This file imports neither Prefect nor Ray, because `overnight validate` answers in seconds.
"""

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import Run, published_files, read_json
from overnight.tasks.write.kinds import Sink


def refuse_other_job(run: Run) -> None:
    """Raise `CheckFailed` if the partition was published by another job."""
    receipt = read_json(run.ledger / "receipt.json")
    if receipt and receipt["job"] != run.job:
        raise CheckFailed(
            f"{run.target}: expected results of the job {run.job!r}, found results published by the job "
            f"{receipt['job']!r}. Give each job a sink of its own."
        )


def refuse_foreign_files(run: Run, sink: Sink) -> None:
    """Raise `CheckFailed` if the target holds files that no receipt of this partition lists."""
    known: set[str] = set()
    receipts = run.ledger / "receipts"
    for name in receipts.names():
        known.update(published_files(read_json(receipts / name)))
    if foreign := sink.foreign(run, known):
        raise CheckFailed(
            f"{run.target}: expected only files of Overnight, found {len(foreign)} that Overnight did not publish, for "
            f"example {foreign[0]}. No file was changed. Move them away, or choose another sink.path."
        )
