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
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import COMMIT, imports
from overnight.tasks.infer.trial import Failed, ModelTrial, Trial
from overnight.tasks.infer.worker_process import begin_process
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.ray_internals import is_started_here
from overnight.tasks.resources.waiting import Warn, wait_until_started
from overnight.tasks.state.run import Run
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.forked_process import Begun, Forked, ProcessDied

MEMORY_BESIDE = 120 * 2**20  # bytes of the Ray actor beside a worker's process
MAX_TRIES = 10  # of the sample, in which up to four rows may end the process

# Of this process, which runs flows: so the next partition of a backfill tries no model again.
_early_trials: set[tuple[str, ...]] = set()
_trials: dict[tuple[Any, ...], Trial] = {}


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
        return begin_process(make, self._link.model, self._pool.num_cpus, is_quiet)

    def on(self, sample: pa.Table, link: Link) -> Trial | Failed | None:
        """Call `ModelTrial.on` in the process, and in a new one after each that ended."""
        for _ in range(MAX_TRIES - 1):
            with contextlib.suppress(ProcessDied):
                return self._call(sample, link)
            self._begun, self._process = self._begin(), None
        return self._call(sample, link)

    def _call(self, sample: pa.Table, link: Link) -> Trial | Failed | None:
        process = self._process or Forked(self._begun, supervisor.ask)
        [result] = process.call("on", sample, link)
        if not isinstance(result, Trial):
            return result
        self._process = process
        return replace(result, memory=result.memory + MEMORY_BESIDE)

    def release(self) -> Begun:
        """Return the process of a `Trial`, for the first worker of the stream to take it over."""
        assert self._process
        return self._process.release()


def begin_trials(run: Run, links: Sequence[Link], plan: Plan) -> list[Any]:
    """Start for each model that reserves only CPUs a process that loads it while inputs are listed."""
    fork_server.preload(imports([link.model for link in links]))
    trials = []
    for link, pool in zip(links, pools_of(links, plan), strict=True):
        reserves_more = pool.num_gpus or pool.memory or pool.accelerator_type or pool.resources
        key = _key(run, link)
        process = None
        if not (reserves_more or link.shares_engine or key in _early_trials):
            process = _begin(link, run, pool, is_early=True)
        trials.append(process)
        _early_trials.add(key)
    return trials


def pools_of(links: Sequence[Link], plan: Plan) -> list[Pool]:
    """Return the pool of each model's workers, which models of one engine have together."""
    pools, pools_of_links = iter(plan.pools), list[Pool]()
    for link in links:
        pools_of_links.append(pools_of_links[-1] if link.shares_engine else next(pools))
    return pools_of_links


def _key(run: Run, link: Link) -> tuple[str, ...]:
    """Return the job's fingerprint, the settings of a model, and the commit of a hub model."""
    return run.fingerprint, link.model.model_dump_json(), link.model.pins.get(COMMIT, "")


def _begin(link: Link, run: Run, pool: Pool, is_early: bool) -> Any:
    """Start the process of a trial, here or from a Ray actor. The actor reserves nothing if it `is_early`."""
    if is_early and is_started_here():
        return TrialProcess(link, run, pool, is_quiet=True)  # this process has the terminal
    options = pool.remote_arguments()
    if is_early:
        node = max(ray.nodes(), key=lambda node: node["Alive"] * node["Resources"].get("CPU", 0))
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
        options = {"num_cpus": 0, "scheduling_strategy": strategy}
    options |= {"max_restarts": MAX_TRIES - 1, "max_task_retries": MAX_TRIES - 1}
    return ray.remote(TrialProcess).options(**options).remote(link, run, pool)


def released(trial: Trial | None) -> Begun | None:
    """End the reservation of a trial, and return its process for the first worker, or None if it is gone."""
    process = trial.process if trial else None
    if isinstance(process, TrialProcess):
        with contextlib.suppress(ProcessDied):
            return process.release()
    elif process:
        try:
            begun: Begun = ray.get(process.release.remote())
            return begun
        except (ProcessDied, ray.exceptions.RayActorError):
            return None
        finally:
            ray.kill(process)
    return None


def end_on_device(begun: Begun | None) -> None:
    """End a released process that has a device, which another run waits for or has."""
    if begun and begun.place[1]:
        strategy = NodeAffinitySchedulingStrategy(begun.place[0], soft=False)
        ray.remote(Begun.end).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote(begun)


def try_model(run: Run, link: Link, pool: Pool, sample: pa.Table, process: Any, warn: Warn) -> Trial | Failed | None:
    """Try the model on the block `sample` in `process`, or in a new one. It stays loaded after a `Trial`."""
    key = (*_key(run, link), sample.schema)
    if key in _trials:
        return _trials[key]
    process = process or _begin(link, run, pool, is_early=False)
    label = link.label
    try:
        result = _call(process, run, link, pool, sample, warn)
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
    if not isinstance(result, Trial):
        return result
    _trials[key] = result
    return replace(result, process=process)


def _call(process: Any, run: Run, link: Link, pool: Pool, sample: pa.Table, warn: Warn) -> Trial | Failed | None:
    """Call `on` of a `TrialProcess`, here or as a Ray actor, which ends if the trial does not pass."""
    if isinstance(process, TrialProcess):
        return process.on(sample, link)
    result: Trial | Failed | None = None
    try:
        wait_until_started(process, pool, run.busy_timeout_seconds, run.stall_timeout_seconds, warn)
        result = ray.get(process.on.remote(sample, link))
        return result
    finally:
        if not isinstance(result, Trial):
            ray.kill(process)
