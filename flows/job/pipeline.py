"""Compile a job: its stages, in the order in which rows pass them."""

from dataclasses import dataclass, replace

from overnight.flows.job.model import Job
from overnight.tasks.config.user_code import fingerprint
from overnight.tasks.duplicates.rule import Rule
from overnight.tasks.infer.in_process import Link
from overnight.tasks.infer.kinds import COMMIT, Predictor, by_engine
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.memory.keys import model_key
from overnight.tasks.memory.settings import ModelMemory
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


def with_memory(pipeline: Pipeline, job: Job, is_read: bool = True) -> Pipeline:
    """Return the pipeline with the memory of each model that is remembered. The models of `job` have their pins.

    Without `is_read`, results are only written there.
    """
    links = [replace(link, memory=memory_of(job, link.model, is_read)) for link in pipeline.links]
    return replace(pipeline, links=links)


def memory_of(job: Job, model: Predictor, is_read: bool = True) -> ModelMemory | None:
    """Return the memory of a model that has its pins; None if the model's results are not remembered."""
    if not job.memory or model.not_remembered() or (model.hub_name() and COMMIT not in model.pins):
        return None
    return ModelMemory(job.memory.path, key_of(model), model.shown_name(), job.memory.days, is_read)


def key_of(model: Predictor) -> str:
    """Return the key of what a model makes of a row. Its name and `where` do not change that."""
    files, targets = dict(model.pins), [code.target for code in model.code()]
    kind = type(model)
    if not kind.__module__.startswith("overnight."):  # a kind of an installed package
        targets.append(f"{kind.__module__}:{kind.__name__}")
        files |= fingerprint(targets[-1])
    return model_key(model.content_settings("name", "where"), files, targets)


def _with(read: Reads, *more: list[str] | None) -> Reads:
    for names in more:
        read = None if read is None or names is None else (*read, *names)
    return read
