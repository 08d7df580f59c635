"""The chain of models in a job's `inference`. A link of it holds a model and the steps that follow the model."""

from overnight.flows.job.model import Job
from overnight.tasks.infer.in_process import Link
from overnight.tasks.preprocess.in_process import Steps

Reads = tuple[str, ...] | None  # the columns that later entries read; None: all columns


def links(job: Job) -> list[Link]:
    """Return a link for each model of the job, in order: the model with the steps that follow it, up to the next model.

    The steps before the first model belong to no link.
    """
    models = job.models
    prefixes = [f"{model.name}_" if len(models) > 1 else "" for model in models]
    made: list[Link] = []
    read: Reads = tuple(job.sink.keep_columns)
    for place in reversed(range(len(models))):
        model, steps = models[place], job.steps_behind[place]
        link = Link(
            model=model,
            prefix=prefixes[place],
            earlier=tuple(prefixes[:place]),
            steps=Steps(tuple(steps), behind=model.shown_name()) if steps else None,
            read=_with(read, *(step.inputs() for step in steps)),
            bytes_stay=not job.source.rows_are_files,
        )
        made.insert(0, link)
        read = _with(link.read, model.reads())
    return made


def _with(read: Reads, *more: list[str] | None) -> Reads:
    for names in more:
        read = None if read is None or names is None else (*read, *names)
    return read
