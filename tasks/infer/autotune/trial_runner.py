"""The processes in which models are loaded and tried; they start early if that costs nothing."""

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
from overnight.tasks.infer.predictor import COMMIT, Predictor, imports
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.state.run import Run
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import Begun, ProcessDied

MAX_TRIES = 10  # of the sample, which may contain four rows that end the process

_begun: set[tuple[str, ...]] = set()  # trials that this process, a flow's, started early
_passed: dict[tuple[str | pa.Schema, ...], Trial] = {}  # results of trials of this process, an infer task's


def begin_trials(run: Run, links: Sequence[Link], plan: Plan) -> list[Any]:
    """Return a process for each model, or None, that loads it while inputs are listed and preprocessing is tried.

    A model that needs more than CPU time starts later: another run may use the device until this one's turn. A model
    that this process tried before does not start again, for example in the next partition of a backfill. Each process
    ends with its last handle.
    """
    fork_server.preload(imports([link.model for link in links]))
    begun = []
    for link, pool in zip(links, plan.pools, strict=True):
        is_free = not (pool.num_gpus or pool.memory or pool.accelerator_type or pool.resources)
        key = (run.fingerprint, *_identity(link.model))
        begun.append(_begin(link, run, pool, True) if is_free and key not in _begun else None)
        _begun.add(key)
    return begun


def _beside_cpus() -> dict[str, Any]:
    """Return options for a node with work capacity: one with the most CPUs."""
    node = max(ray.nodes(), key=lambda node: node["Alive"] * node["Resources"].get("CPU", 0))
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)}


def _identity(model: Predictor) -> tuple[str, str]:
    """Return the settings of a model, and the commit of a hub model."""
    return model.model_dump_json(), model.pins.get(COMMIT, "")


def is_forked(model: Predictor, pool: Pool) -> bool:
    """Return True if its workers are forked from the fork server. Only Ray's own processes open devices."""
    has_device = pool.num_gpus or pool.accelerator_type or pool.resources
    return model.imports() is not None and not has_device and fork_server.is_there()


def _begin(link: Link, run: Run, pool: Pool, is_early: bool) -> Any:
    """Start a forked process, or a Ray actor with the reservation of a worker.

    If `is_early`, the actor reserves nothing.
    """
    if is_forked(link.model, pool):
        return Begun(partial(loaded, link, run), is_quiet=is_early)  # early: by the process with the terminal
    reserves = {"num_cpus": 0, **_beside_cpus()} if is_early else pool.remote_arguments()
    again = {"max_restarts": MAX_TRIES - 1, "max_task_retries": MAX_TRIES - 1}
    actor = ray.remote(ModelTrial).options(**reserves, **again).remote(link, run)
    actor.loaded.remote()
    return actor


def tried(run: Run, link: Link, pool: Pool, sample: pa.Table, rows_to_do: float, begun: Any) -> Trial | Failed | None:
    """Run `ModelTrial.on` in a process that then ends and frees its device.

    The process has a worker's reservation if it was not `begun`. It runs once: a model that accepted rows with these
    columns in an earlier partition of a backfill accepts them again.
    """
    key = (run.fingerprint, *_identity(link.model), sample.schema)
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
            "takes longer than row_timeout_seconds, for any row.",
            "infer",
            "WorkerCrashedError",
        ) from error
    except Exception as error:
        if isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RayTaskError):
            raise  # a problem of the cluster, not of the model; a new attempt may succeed
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
