"""Read deployments/prefect.yaml, and check it against the job files before the server changes.

`prefect deploy` reads `deployments`. It ignores `definitions`, which has the pools, queues and limits.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from overnight.flows.deploy.deployments import DEPLOYED, RUN, UndeployedJob, deployed_flows, describe, flow_at, flows_of
from overnight.flows.job.loading import load_job, read_job, relative_paths
from overnight.flows.job.model import Job
from overnight.flows.runs.local_ray import check_ray_address
from overnight.tasks.errors import JobError

PREFECT_FILE = Path("deployments/prefect.yaml")
DEFAULTS = Path(__file__).parent / "shipped/prefect.yaml"  # in a checkout a link to deployments/prefect.yaml
SLUG = "daily"  # the slug of schedules that come from a job file


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkQueue(_Strict):
    """A queue of waiting runs, with the number of its runs at a time. A worker takes runs of priority 1 first."""

    name: str
    priority: Annotated[int, Field(ge=1)]
    concurrency_limit: Annotated[int | None, Field(ge=0)] = None


class WorkPool(_Strict):
    """A pool from which workers take runs. `type` is Prefect's type of workers, such as `process` or `kubernetes`."""

    name: str
    type: str
    concurrency_limit: Annotated[int | None, Field(ge=0)] = None
    base_job_template: dict[str, Any] | None = None
    work_queues: list[WorkQueue] = []


class ConcurrencyLimit(_Strict):
    name: str
    limit: Annotated[int, Field(ge=0)]


class _Definitions(BaseModel):
    """The definitions that Overnight reads. The others are anchors of the file."""

    work_pools: list[WorkPool] = []
    concurrency_limits: list[ConcurrencyLimit] = []


class PrefectFile:
    """The content of a prefect.yaml. `deployments` maps the name `FLOW/DEPLOYMENT` to the entry as it is written.

    `obsolete` names deployments that its jobs no longer have. `described` is the whole content as YAML values.
    """

    def __init__(self, path: Path = PREFECT_FILE, job_paths: Sequence[Path] = ()) -> None:
        """Read a prefect.yaml. With `job_paths`, use the definitions of the package, and add these jobs."""
        self.path, self.is_default = DEFAULTS if job_paths else path, bool(job_paths)
        if not self.path.is_file():
            raise JobError(
                f"expected {path}, found no file. Call this in the project's folder, or name the jobs: "
                "overnight deploy JOB.yaml"
            )
        try:
            self.described = yaml.safe_load(self.path.read_text())
            definitions = _Definitions.model_validate(self.described.get("definitions") or {})
        except (yaml.YAMLError, ValidationError) as error:
            raise JobError(f"{path}: {error}") from None
        if job_paths:
            entries: list[dict[str, Any]] = []
            for job_path, job in deployable_jobs(job_paths).items():
                entries += _entries(job_path, job, self.described["definitions"])
            self.described["deployments"] = entries
        self.work_pools = definitions.work_pools
        self.concurrency_limits = definitions.concurrency_limits
        self.deployments: dict[str, Mapping[str, Any]] = {}
        self.obsolete: set[str] = set()
        self.jobs: dict[str, Job] = {}  # by the name of the deployment that runs partitions
        for entry in self.described["deployments"]:
            self._add(entry)

    @property
    def flow_names(self) -> set[str]:
        return deployed_flows() | {name.partition("/")[0] for name in self.deployments}

    def _add(self, entry: Mapping[str, Any]) -> None:
        name = f"{flow_at(entry['entrypoint']).name}/{entry['name']}"
        if twin := self.deployments.get(name):
            files = " and ".join(str((owner.get("parameters") or {}).get("job")) for owner in (twin, entry))
            raise JobError(
                f"{self.path}: expected one deployment with the name {name}, found two, for {files}. Change the "
                "name of a job, and of its entries."
            )
        self.deployments[name] = entry
        self._check_queue(name, entry["work_pool"])
        environment = (entry["work_pool"].get("job_variables") or {}).get("env") or {}
        check_ray_address(environment.get("RAY_ADDRESS", ""), f"{self.path}: RAY_ADDRESS of {entry['name']}")
        if entry["entrypoint"] in DEPLOYED:  # otherwise a flow of your own
            self._check_job(entry)

    def _check_job(self, entry: Mapping[str, Any]) -> None:
        job = deployable(Path(entry["parameters"]["job"]))
        if entry["entrypoint"] == RUN:
            self.jobs[entry["name"]] = job
        self.obsolete |= obsolete_deployments(job)
        times = [(schedule["cron"], schedule.get("timezone", "UTC")) for schedule in entry["schedules"]]
        try:
            schedule = DEPLOYED[entry["entrypoint"]](job)
        except UndeployedJob as error:
            raise JobError(
                f"{self.path}: expected no deployment of {entry['entrypoint']} for {entry['name']}, found one, but "
                f"{error}. Remove the entry, or change the job file."
            ) from None
        own_times = [(schedule.cron, schedule.timezone)] if schedule else []
        if times != own_times:
            raise JobError(
                f"{self.path}: expected the schedule of the job file for {entry['name']}, {own_times or 'none'}, found "
                f"{times or 'none'}. Write the same in both files."
            )

    def _check_queue(self, name: str, entry: Mapping[str, Any]) -> None:
        queues: dict[str, list[str]] = {}
        for work_pool in self.work_pools:
            queues[work_pool.name] = [queue.name for queue in work_pool.work_queues]
        pool, queue = entry["name"], entry.get("work_queue_name", "default")
        if pool not in queues or queue not in [*queues[pool], "default"]:
            raise JobError(
                f"{self.path}: expected a queue of definitions.work_pools for {name}, one of {queues}, found queue "
                f"{queue} of pool {pool}. Define the queue, or name another."
            )


def _entries(job_path: Path, job: Job, definitions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for flow, schedule in flows_of(job):
        times = [{"cron": schedule.cron, "timezone": schedule.timezone, "slug": SLUG}] if schedule else []
        yield {
            **definitions[flow.fn.__name__],
            "name": job.name,
            "description": describe(flow, job, job_path),
            "parameters": {"job": str(job_path.resolve())},
            "tags": ["overnight", f"job:{job.name}"],
            "schedules": times,
        }


def deployable_jobs(job_paths: Sequence[Path]) -> dict[Path, Job]:
    """Load jobs for deployments, each with its file."""
    files: dict[str, Path] = {}
    jobs: dict[Path, Job] = {}
    for path in job_paths:
        jobs[path] = deployable(path)
        name = jobs[path].name
        if name in files:
            raise JobError(
                f"expected one job file with the name {name}, found two: {files[name]} and {path}. The name of a job "
                "is the name of its deployment. Change one of them."
            )
        files[name] = path
    return jobs


def obsolete_deployments(job: Job) -> set[str]:
    """Return the names of the deployments that this job does not have, such as `freshness/NAME` without a deadline."""
    flows = deployed_flows() - {flow.name for flow, _ in flows_of(job)}
    return {f"{flow}/{job.name}" for flow in flows}


def deployable(job_path: Path) -> Job:
    """Load a job for a deployment, in which it must mean the same on every machine.

    Raise `JobError` if the job is wrong, or has a relative path.
    """
    relative = relative_paths(read_job(job_path))
    if relative:
        raise JobError(
            f"{job_path}: expected full paths or URIs in a deployment, found {', '.join(relative)}. A relative path "
            "depends on the machine. Call with --absolute-paths, write it in full, or begin it with ${ENV_VAR}."
        )
    return load_job(job_path)
