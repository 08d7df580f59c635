"""A Ray actor of the stream, around the process of its own in which a segment with a model runs."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial

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
        is_restarted, link = _was_restarted(), segment.stages[-1]
        assert isinstance(link, Link)
        calls_at_once = link.model.calls_at_once()
        if loaded_in and loaded_in.place == place():
            with contextlib.suppress(ProcessDied):  # another worker was first
                self._worker = Forked(loaded_in, supervisor.ask, takes_output=True, calls_at_once=calls_at_once)
                list(self._worker.call("become", segment, run, is_restarted))
                return
        with ending_together():
            make = partial(SegmentWorker, segment, run, is_restarted=is_restarted)
            begun = Begun(make, forks=forks(link.model), environment=ray_variables())
            self._worker = Forked(begun, supervisor.ask, calls_at_once=calls_at_once)

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        with ending_together():
            yield from self._worker.call("__call__", block)


def _was_restarted() -> bool:
    """Return True if this process is an actor that Ray restarted."""
    context = ray.get_runtime_context() if ray.is_initialized() else None
    return bool(context and context.get_actor_id() and context.was_current_actor_reconstructed)


def forks(model: Predictor) -> bool:
    """Return True if the process of `model` may be forked from the fork server: see `Predictor.imports`."""
    return model.imports() is not None and not model.accelerators()


def place() -> tuple[str, dict[str, list[str]]]:
    """Return the node of this process, and the accelerators that Ray gave it if it is an actor.

    A process that this one starts has the same.
    """
    if not ray.is_initialized():
        return "", {}
    context = ray.get_runtime_context()
    given = context.get_accelerator_ids() if context.get_actor_id() else {}
    return context.get_node_id(), {name: ids for name, ids in given.items() if ids}


def ray_variables(num_cpus: float = 1) -> dict[str, str]:
    """Return the variables by which a process that this one starts finds this Ray, and by which Ray sets its threads.

    `num_cpus` are those of a worker, unless Ray has set the threads of this process.
    """
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(int(num_cpus), 1))
    if not ray.is_initialized():
        return {"OMP_NUM_THREADS": threads}
    context = ray.get_runtime_context()
    return {
        "OMP_NUM_THREADS": threads,
        **joining(context.gcs_address),
        "OVERNIGHT_RAY_NAMESPACE": context.namespace,
    }
