"""A Ray actor of the stream, around the process of its own in which a segment with a model runs."""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import ray

from overnight.tasks.engine.segment import Segment, SegmentWorker
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.resources.ray_internals import joining
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.forked_process import Begun, Forked, ProcessDied, ending_together


class WorkerProcess:
    """Passes each block to a `SegmentWorker` in a process of its own, and ends with that process.

    `loaded_in` is the process of the trial, which has loaded the model. The first worker with the same place takes that
    process over, and the others start their own.
    """

    def __init__(self, segment: Segment, run: Run, loaded_in: Begun | None = None) -> None:
        link = segment.stages[-1]
        assert isinstance(link, Link)
        context = ray.get_runtime_context() if ray.is_initialized() else None
        is_restarted = bool(context and context.get_actor_id() and context.was_current_actor_reconstructed)
        calls = calls_at_once(segment)
        if loaded_in and loaded_in.place == place():
            with contextlib.suppress(ProcessDied):  # another worker was first
                self._worker = Forked(loaded_in, supervisor.ask, takes_output=True, calls_at_once=calls)
                list(self._worker.call("become", segment, run, is_restarted))
                return
        with ending_together():
            process = begin_process(partial(SegmentWorker, segment, run, is_restarted=is_restarted), link.model)
            self._worker = Forked(process, supervisor.ask, calls_at_once=calls)

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        with ending_together():
            yield from self._worker.call("__call__", block)


def calls_at_once(segment: Segment) -> int:
    """Return how many calls a worker of a segment may run concurrently: the most of its models."""
    return max(stage.model.calls_at_once() for stage in segment.stages if isinstance(stage, Link))


def begin_process(make: Callable[[], Any], model: Predictor, num_cpus: float = 1, is_quiet: bool = False) -> Begun:
    """Start a process that makes an object with `model`; it is forked if `Predictor.imports` allows that."""
    forks = model.imports() is not None and not model.accelerators()
    process = Begun(make, is_quiet, forks, ray_variables(num_cpus))
    process.place = place()
    return process


def place() -> tuple[str, dict[str, list[str]]]:
    """Return the node of this process, and the accelerators that Ray gave it: also for a process that it starts."""
    if not ray.is_initialized():
        return "", {}
    context = ray.get_runtime_context()
    if not context.get_actor_id():
        return context.get_node_id(), {}
    return context.get_node_id(), {name: ids for name, ids in context.get_accelerator_ids().items() if ids}


def ray_variables(num_cpus: float = 1) -> dict[str, str]:
    """Return the variables by which a process finds this Ray, and its threads: `num_cpus` unless Ray has set them."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(int(num_cpus), 1))
    if not ray.is_initialized():
        return {"OMP_NUM_THREADS": threads}
    context = ray.get_runtime_context()
    return {
        "OMP_NUM_THREADS": threads,
        **joining(context.gcs_address),
        "OVERNIGHT_RAY_NAMESPACE": context.namespace,
    }
