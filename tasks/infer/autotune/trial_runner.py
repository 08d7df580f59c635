"""The processes in which models are loaded and tried. A process starts early if its model reserves only CPUs.

The model stays loaded there, and the first worker of the stream takes the process over. A Ray actor starts the process
if the model reserves a device, or if workers run elsewhere: it has the reservation, and the environment that Ray gives
a worker. It ends before the stream starts, and the process waits for the worker with the same devices.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from overnight.tasks.errors import JobError, OvernightError, StageFailed, find_cause
from overnight.tasks.infer.autotune.trial import Failed, ModelTrial, Trial
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import COMMIT, Predictor, imports
from overnight.tasks.infer.worker_process import forks, place, ray_variables
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.ray_internals import is_started_here
from overnight.tasks.resources.waiting import Warn, wait_until_started
from overnight.tasks.state.run import Run
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.forked_process import Begun, Forked, ProcessDied

MEMORY_BESIDE = 120 * 2**20  # bytes of the Ray actor beside a worker's process
MAX_TRIES = 10  # of the sample, in which up to four rows may end the process

_begun: set[tuple[str, ...]] = set()  # the trials that this process, which runs a flow, started early
_passed: dict[tuple[str | pa.Schema, ...], Trial] = {}  # passed trials of this process, which runs `infer`


class TrialProcess:
    """Starts a process that loads the model of `link`, and tries the model there: in this process, or as a Ray actor.

    `pool` has the reservation of a worker. If `is_quiet`, the process does not write to this process's output.
    """

    def __init__(self, link: Link, run: Run, pool: Pool, is_quiet: bool = False) -> None:
        self._link, self._run, self._pool = link, run, pool
        self._begun = self._begin(is_quiet)
        self._process: Forked | None = None

    def _begin(self, is_quiet: bool = False) -> Begun:
        make = partial(ModelTrial, self._link, self._run)
        begun = Begun(make, is_quiet, forks(self._link.model), ray_variables(self._pool.num_cpus))
        begun.place = place()
        return begun

    def on(self, sample: pa.Table) -> Trial | Failed | None:
        """Call `ModelTrial.on` in the process, in a new one after each that ended. Raise `ProcessDied` after the last.

        The memory of a `Trial` includes that of the Ray actor beside each worker's process. After a `Trial`, the model
        stays loaded.
        """
        for _ in range(MAX_TRIES - 1):
            with contextlib.suppress(ProcessDied):
                return self._tried(sample)
            self._begun = self._begin()
        return self._tried(sample)

    def _tried(self, sample: pa.Table) -> Trial | Failed | None:
        process = Forked(self._begun, supervisor.ask)
        [found] = process.call("on", sample)
        if not isinstance(found, Trial):
            return found
        self._process = process
        return replace(found, memory=found.memory + MEMORY_BESIDE)

    def release(self) -> Begun:
        """Return the process of a `Trial`, for the first worker of the stream to take it over."""
        assert self._process
        return self._process.release()


def begin_trials(run: Run, links: Sequence[Link], plan: Plan) -> list[Any]:
    """Start for each model a process that loads it while inputs are listed and preprocessing is tried.

    Return one element per link: a `TrialProcess`, a Ray actor of that class, or None if no process was started. A
    process ends when nothing refers to it any longer. A model that reserves more than CPUs starts later, because
    another run may use its device until then. A model that an earlier call in this process started is not started
    again, as in the next partition of a backfill.
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


def _begin(link: Link, run: Run, pool: Pool, is_early: bool) -> Any:
    """Start the process of a trial: from here, or from a Ray actor with the reservation of a worker.

    If `is_early`, the actor reserves nothing.
    """
    if is_early and is_started_here():
        return TrialProcess(link, run, pool, is_quiet=True)  # this process has the terminal
    reserves = {"num_cpus": 0, **_beside_cpus()} if is_early else pool.remote_arguments()
    again = {"max_restarts": MAX_TRIES - 1, "max_task_retries": MAX_TRIES - 1}
    return ray.remote(TrialProcess).options(**reserves, **again).remote(link, run, pool)


def released(trial: Trial | None) -> Begun | None:
    """Return the process of a trial for the first worker of the stream, and end the trial's reservation.

    Return None if there was no trial, or if the process is gone.
    """
    held = trial.held if trial else None
    if isinstance(held, TrialProcess):
        with contextlib.suppress(ProcessDied):
            return held.release()
    elif held:
        try:
            begun: Begun = ray.get(held.release.remote())
            return begun
        except (ProcessDied, ray.exceptions.RayActorError):
            return None
        finally:
            ray.kill(held)
    return None


def end_on_device(begun: Begun | None) -> None:
    """End a released process that has a device, which another run waits for or has."""
    if begun and begun.place[1]:
        there = NodeAffinitySchedulingStrategy(begun.place[0], soft=False)
        ray.remote(Begun.end).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(begun)


def try_model(run: Run, link: Link, pool: Pool, sample: pa.Table, begun: Any, warn: Warn) -> Trial | Failed | None:
    """Try the model of `link` on the block `sample`, and return the result: a `Trial`, a `Failed`, or None for no rows.

    `begun` is the model's process from `begin_trials`. If it is None, a process starts here with the reservation in
    `pool`. `warn` is called with what that waits for. If the trial passed, the model stays loaded, with its
    reservation, until `released` is called with the result. Every other process ends.

    A model that passed a trial in this process is not tried again with rows of the same columns. The earlier result is
    then returned, as in the next partition of a backfill.

    Raise `StageFailed` if the process ends in each of `MAX_TRIES` tries, or if its reservation is not there in time:
    the run's `busy_timeout_seconds` or `stall_timeout_seconds`. Raise `JobError` if the model cannot be
    loaded, and `ContractError` if it breaks its contract. Raise Ray's own error for a problem of the cluster.
    """
    key = (run.fingerprint, *_identity(link.model), sample.schema)
    if key in _passed:
        return _passed[key]
    trying = begun or _begin(link, run, pool, False)
    label = f"inference {pool.label}"
    try:
        found = _tried(trying, run, pool, sample, warn)
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
    if not isinstance(found, Trial):
        return found
    _passed[key] = found
    return replace(found, held=trying)


def _tried(trying: Any, run: Run, pool: Pool, sample: pa.Table, warn: Warn) -> Trial | Failed | None:
    """Call `on` of a `TrialProcess`, here or as a Ray actor, which ends if the trial does not pass."""
    if isinstance(trying, TrialProcess):
        return trying.on(sample)
    found: Trial | Failed | None = None
    try:
        wait_until_started(trying, pool, run.busy_timeout_seconds, run.stall_timeout_seconds, warn)
        found = ray.get(trying.on.remote(sample))
        return found
    finally:
        if not isinstance(found, Trial):
            ray.kill(trying)
