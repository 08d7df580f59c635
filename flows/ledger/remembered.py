"""What is remembered of the rows of a job's models before a run, by the keys of the models.

A row's own key depends on values that only a run decodes, so this does not know which rows will be reused.
"""

import time
from dataclasses import dataclass
from typing import Any

from overnight.flows.job.model import Job
from overnight.flows.job.pipeline import memory_of
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import OvernightError
from overnight.tasks.reuse.kept_files import count_keys
from overnight.tasks.state.run import Run


@dataclass(frozen=True)
class Remembered:
    """The number of rows under a model's key; None if they are unknown or not remembered, with the reason."""

    model: str
    rows: int | None
    reason: str = ""

    def __str__(self) -> str:
        if self.rows is None:
            return f"memory of {self.model}: {self.reason}"
        if self.rows:
            return f"memory of {self.model}: {self.rows:,} rows remembered under this model's key"
        return f"memory of {self.model}: new key: no row remembered"

    def as_json(self) -> dict[str, Any]:
        return {"model": self.model, "rows_remembered": self.rows, "reason": self.reason or None}


def remembered_rows(job: Job, run: Run | None = None) -> list[Remembered]:
    """Return what is remembered for each model of a job; an empty list for a job without `memory`.

    `run` is any run of the job with its settings of now.
    """
    if not job.memory:
        return []
    entries = []
    for model in job.pinned(run or describe_run(job, "all")).models:
        name, rows, reason = model.shown_name(), None, model.not_remembered()
        memory = memory_of(job, model)
        try:
            if memory:
                rows = count_keys(memory.folder, time.time() - memory.days * 86400)
            else:
                reason = f"not remembered, because {reason or 'the hub does not answer, so its commit is unknown'}"
        except (OvernightError, OSError) as error:
            reason = f"unknown, because its files cannot be listed: {error}"
        entries.append(Remembered(name, rows, reason or ""))
    return entries
