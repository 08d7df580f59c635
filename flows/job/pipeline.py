"""Compile a job: its stages, in the order in which rows pass them."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from overnight.flows.job.model import Job
from overnight.tasks.config.user_code import fingerprint
from overnight.tasks.duplicates.rule import Rule
from overnight.tasks.infer.in_process import Link
from overnight.tasks.infer.kinds import COMMIT, Predictor, by_engine
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.memory.keys import model_key
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.preprocess.in_process import Steps
from overnight.tasks.preprocess.kinds import PreprocessStep, Step
from overnight.tasks.shuffle.kinds import Shuffle

IMAGE_LIBRARIES = ("PIL", "pillow_heif")  # whose versions decide what steps make of images
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
    """Return the pipeline with the memory of each model and step that is remembered. The models have their pins.

    Without `is_read`, results are only written there.
    """
    numbers = count(1)
    steps = [_remembered(step, job, next(numbers), is_read) for step in pipeline.steps]
    links = []
    for link in pipeline.links:
        behind = link.steps
        if isinstance(behind, Steps):
            own = [_remembered(step, job, next(numbers), is_read) for step in behind.steps]
            behind = replace(behind, steps=tuple(own))
        links.append(replace(link, memory=memory_of(job, link.model, is_read), steps=behind))
    return replace(pipeline, steps=steps, links=links)


def _remembered(step: Any, job: Job, number: int, is_read: bool) -> Any:
    if not job.memory or not isinstance(step, PreprocessStep) or not step.remember:
        return step
    name = f"step {number} {getattr(step, 'target', None) or step.kind}"
    return step.remembered(ModelMemory(job.memory.path, key_of(step), name, job.memory.days, is_read))


def memory_of(job: Job, model: Predictor, is_read: bool = True) -> ModelMemory | None:
    """Return the memory of a model that has its pins; None if the model's results are not remembered."""
    if not job.memory or model.not_remembered() or (model.hub_name() and COMMIT not in model.pins):
        return None
    return ModelMemory(job.memory.path, key_of(model), model.shown_name(), job.memory.days, is_read)


def key_of(leaf: Predictor | PreprocessStep) -> str:
    """Return the key of what a model or a step makes of a row. A model's name and `where` do not change that."""
    targets = [code.target for code in leaf.code()]
    if isinstance(leaf, Predictor):
        files, settings = {**leaf.pins, **leaf.addresses()}, leaf.content_settings("name", "where")
    else:
        files, settings = leaf.fingerprint() | leaf.further_files(), leaf.content_settings()
        targets += [*leaf.libraries(), *IMAGE_LIBRARIES]
    kind = type(leaf)
    if not kind.__module__.startswith("overnight."):  # a kind of an installed package
        targets.append(f"{kind.__module__}:{kind.__name__}")
        files |= fingerprint(targets[-1])
    return model_key(settings, files, targets)


def _with(read: Reads, *more: list[str] | None) -> Reads:
    for names in more:
        read = None if read is None or names is None else (*read, *names)
    return read
