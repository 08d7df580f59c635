"""Compile a job: its stages, in the order in which rows pass them."""

from dataclasses import dataclass

from overnight.flows.job.model import Job
from overnight.tasks.duplicates.rule import Rule
from overnight.tasks.infer.in_process import Link
from overnight.tasks.infer.kinds import by_engine
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.preprocess.in_process import Steps
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.shuffle.kinds import Shuffle

Reads = tuple[str, ...] | None  # the columns that later entries read; None: all columns


@dataclass(frozen=True)
class Pipeline:
    """The stages of a job: what reads the rows, their order, the steps, and the models with the steps behind each."""

    source: Source
    shuffle: Shuffle
    steps: list[Step]
    links: list[Link]
    rules: list[Rule]


def compile_job(job: Job) -> Pipeline:
    """Return the stages of a job. Each model drops the heavy columns that nothing behind it reads or publishes."""
    models = job.models
    prefixes = [f"{model.name}_" if len(models) > 1 else "" for model in models]
    shares_engine: list[bool] = []
    for group in by_engine(models):
        shares_engine += [False, *[True] * (len(group) - 1)]
    links: list[Link] = []
    read: Reads = tuple(job.sink.keep_columns)
    for number in reversed(range(len(models))):
        model, steps = models[number], job.steps_behind[number]
        link = Link(
            model=model,
            prefix=prefixes[number],
            earlier=tuple(prefixes[:number]),
            steps=Steps(tuple(steps), behind=model.shown_name()) if steps else None,
            read=_with(read, *(step.inputs() for step in steps)),
            bytes_stay=not job.source.rows_are_files,
            shares_engine=shares_engine[number],
        )
        links.insert(0, link)
        read = _with(link.read, model.reads())
    return Pipeline(job.source, job.shuffle, job.steps, links, [step.rule for step in job.last_steps])


def _with(read: Reads, *more: list[str] | None) -> Reads:
    for names in more:
        read = None if read is None or names is None else (*read, *names)
    return read
