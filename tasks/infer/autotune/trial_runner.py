"""The processes in which models are loaded and tried. A process starts early if its model reserves only CPUs."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from overnight.tasks.errors import JobError, OvernightError, StageFailed, find_cause
from overnight.tasks.infer.autotune.trial import Failed, ModelTrial, Trial, loaded, on_forked
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import COMMIT, Predictor, imports
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.waiting import Warn, wait_until_started
from overnight.tasks.state.run import Run
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import Begun, ProcessDied

MAX_TRIES = 10  # of the sample, in which up to four rows may end the process

_begun: set[tuple[str, ...]] = set()  # the trials that this process, which runs a flow, started early
_passed: dict[tuple[str | pa.Schema, ...], Trial] = {}  # passed trials of this process, which runs `infer`


def begin_trials(run: Run, links: Sequence[Link], plan: Plan) -> list[Any]:
    """Start for each model a process that loads it while inputs are listed and preprocessing is tried.

    Return one element per link: a `Begun` (a forked process), a Ray actor, or None if no process was started. A process
    ends when nothing refers to it any longer. A model that reserves more than CPUs starts later, because another run
    may use its device until then. A model that an earlier call in this process started is not started again, as in the
    next partition of a backfill.
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
    """Return the options of a Ray actor that prefers the node with the most CPUs."""
    node = max(ray.nodes(), key=lambda node: node["Alive"] * node["Resources"].get("CPU", 0))
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)}


def _identity(model: Predictor) -> tuple[str, str]:
    """Return the settings of a model, and the commit of a hub model."""
    return model.model_dump_json(), model.pins.get(COMMIT, "")


def is_forked(model: Predictor, pool: Pool) -> bool:
    """Return True if the workers of `model` are forked from the fork server, and False if they run in Ray's processes.

    They are forked if the model allows it (`Predictor.imports`), a fork server runs, and `pool` reserves no device and
    no custom resource.
    """
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


def try_model(
    run: Run, link: Link, pool: Pool, sample: pa.Table, rows_to_do: float, begun: Any, warn: Warn
) -> tuple[Trial | Failed | None, Begun | None]:
    """Try the model of `link` on the block `sample`, and return the result: a `Trial`, a `Failed`, or None for no rows.

    `rows_to_do` is the number of rows that the model gets in the whole run. `begun` is the model's process from
    `begin_trials`. If it is None, a process starts here with the reservation in `pool`. `warn` is called with what that
    waits for. If the trial passed in a forked process, the model stays loaded there. The process is also returned, to
    become the first worker. Every other process ends after the trial, and frees its device.

    A model that passed a trial in this process is not tried again with rows of the same columns. The earlier result is
    then returned, as in the next partition of a backfill.

    Raise `StageFailed` if the process ends in each of `MAX_TRIES` tries, or if its reservation is not there in time:
    the run's `busy_timeout_seconds` or `stall_timeout_seconds`. Raise `JobError` if the model cannot be
    loaded, and `ContractError` if it breaks its contract. Raise Ray's own error for a problem of the cluster.
    """
    key = (run.fingerprint, *_identity(link.model), sample.schema)
    if key in _passed:
        return _passed[key], None
    trying = begun or _begin(link, run, pool, False)
    label = f"inference {pool.label}"
    try:
        if isinstance(trying, Begun):
            found, loaded_in = _tried_forked(trying, link, run, sample, rows_to_do)
        else:
            found, loaded_in = _tried_by_ray(trying, run, pool, sample, rows_to_do, warn), None
    except (ray.exceptions.RayActorError, ProcessDied) as error:
        raise StageFailed(
            f"{label}: its process ended {MAX_TRIES} times while {len(sample)} rows were tried: the model crashes, or "
            "takes longer than row_timeout_seconds, for any row.",
            "infer",
            "WorkerCrashedError",
        ) from error
    except OvernightError:
        raise
    except Exception as error:
        if isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RayTaskError):
            raise  # a problem of the cluster, not of the model; a new attempt may succeed
        raise find_cause(error) or JobError(f"{label}: {getattr(error, 'cause', error)}", "infer") from None
    if isinstance(found, Trial):
        _passed[key] = found
    return found, loaded_in


def _tried_forked(
    begun: Begun, link: Link, run: Run, sample: pa.Table, rows_to_do: float
) -> tuple[Trial | Failed | None, Begun | None]:
    for _ in range(MAX_TRIES - 1):
        with contextlib.suppress(ProcessDied):
            return on_forked(begun, sample, rows_to_do)
        begun = Begun(partial(loaded, link, run))
    return on_forked(begun, sample, rows_to_do)


def _tried_by_ray(
    trying: Any, run: Run, pool: Pool, sample: pa.Table, rows_to_do: float, warn: Warn
) -> Trial | Failed | None:
    try:
        wait_until_started(trying, pool, run.busy_timeout_seconds, run.stall_timeout_seconds, warn)
        found: Trial | Failed | None = ray.get(trying.on.remote(sample, rows_to_do))
        return found
    finally:
        ray.kill(trying)
