"""Trials seen from outside: the processes in which models are loaded and tried, begun early where that is free."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from overnight.tasks.errors import JobError, StageFailed, find_cause
from overnight.tasks.infer.autotune.trial import Failed, ModelTrial, Trial, loaded, on_forked
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor, imports
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.state.run import Run
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import Begun, ProcessDied

MAX_TRIES = 10  # of the sample, which may hold four rows that end the process

_begun: set[tuple[str, str]] = set()  # what was begun early by this process, a flow's
_passed: dict[tuple[str, str, pa.Schema], Trial] = {}  # what was tried by this process, an infer task's


def begin_trials(run: Run, links: Sequence[Link], plan: Plan) -> list[Any]:
    """A process for each model that loads it while inputs are listed and preprocessing is tried; None for some.

    Not where a model takes more than a CPU's time: a device may be another run's until this one's turn comes. Nor where
    it was tried before in this process: the next partition of a backfill does without. Each ends with its last handle.
    """
    fork_server.preload(imports([link.model for link in links]))
    begun = []
    for link, pool in zip(links, plan.pools, strict=True):
        is_free = not (pool.num_gpus or pool.memory or pool.accelerator_type or pool.resources)
        key = (run.fingerprint, link.model.model_dump_json())
        begun.append(_begin(link, run, pool, True) if is_free and key not in _begun else None)
        _begun.add(key)
    return begun


def _beside_cpus() -> dict[str, Any]:
    """A node that is there for work: one with the most CPUs."""
    node = max(ray.nodes(), key=lambda node: node["Alive"] * node["Resources"].get("CPU", 0))
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)}


def is_forked(model: Predictor, pool: Pool) -> bool:
    """Whether its workers are processes forked of the fork server. Devices are opened by processes of Ray's alone."""
    has_device = pool.num_gpus or pool.accelerator_type or pool.resources
    return model.imports() is not None and not has_device and fork_server.is_there()


def _begin(link: Link, run: Run, pool: Pool, is_early: bool) -> Any:
    """A forked process; or an actor of Ray's with the reservation of a worker, without one where it `is_early`."""
    if is_forked(link.model, pool):
        return Begun(partial(loaded, link, run), is_quiet=is_early)  # early: by the process with the terminal
    reserves = {"num_cpus": 0, **_beside_cpus()} if is_early else pool.remote_arguments()
    again = {"max_restarts": MAX_TRIES - 1, "max_task_retries": MAX_TRIES - 1}
    actor = ray.remote(ModelTrial).options(**reserves, **again).remote(link, run)
    actor.loaded.remote()
    return actor


def tried(run: Run, link: Link, pool: Pool, sample: pa.Table, rows_to_do: float, begun: Any) -> Trial | Failed | None:
    """`ModelTrial.on` in a process that ends with it and frees its device; with a worker's reservation if not `begun`.

    Once: a model that took rows of these columns in an earlier partition of a backfill takes them again.
    """
    key = (run.fingerprint, link.model.model_dump_json(), sample.schema)
    if key in _passed:
        return _passed[key]
    trying = begun or _begin(link, run, pool, False)
    label = f"inference {pool.label}"
    try:
        if isinstance(trying, Begun):
            found = _tried_forked(trying, link, run, sample, rows_to_do)
        else:
            found = _tried_by_ray(trying, sample, rows_to_do)
    except (ray.exceptions.RayActorError, ProcessDied) as error:
        raise StageFailed(
            f"{label}: its process ended {MAX_TRIES} times while {len(sample)} rows were tried: the model crashes, or "
            "takes longer than row_timeout_seconds, whatever the row.",
            "infer",
            "WorkerCrashedError",
        ) from error
    except Exception as error:
        if isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RayTaskError):
            raise  # the cluster's trouble: it says nothing of the model, and a new attempt may do without
        raise find_cause(error) or JobError(f"{label}: {getattr(error, 'cause', error)}", "infer") from None
    if isinstance(found, Trial):
        _passed[key] = found
    return found


def _tried_forked(begun: Begun, link: Link, run: Run, sample: pa.Table, rows_to_do: float) -> Trial | Failed | None:
    for _ in range(MAX_TRIES - 1):
        with contextlib.suppress(ProcessDied):
            return on_forked(begun, sample, rows_to_do)
        begun = Begun(partial(loaded, link, run))
    return on_forked(begun, sample, rows_to_do)


def _tried_by_ray(trying: Any, sample: pa.Table, rows_to_do: float) -> Trial | Failed | None:
    try:
        found: Trial | Failed | None = ray.get(trying.on.remote(sample, rows_to_do))
        return found
    finally:
        ray.kill(trying)
