"""Read the objects of a prefect.yaml from a Prefect server as plain values, and compare two such states."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound

from overnight.flows.deploy.prefect_yaml import PrefectFile

PAGE = 200
OURS = "overnight"  # the names of Overnight's limits and automations begin with this
SHOWN = 60  # characters of a value to show

ServerObject = tuple[str, str]  # kind and name
ServerState = dict[ServerObject, dict[str, Any]]

# These fields are too long, or may hold secrets: a change is listed without its values.
_UNTOLD = frozenset({"form", "base_job_template", "job_variables", "trigger", "actions"})


@dataclass(frozen=True)
class Change:
    """The change of one server object. `fields` holds a tuple (field, old value, new value) for each changed field.

    `done` is created, changed, unchanged, removed, or `left alone` if no applied file names the object.
    """

    kind: str  # such as `work pool`
    name: str
    done: str
    fields: tuple[tuple[str, Any, Any], ...] = ()

    def __str__(self) -> str:
        fields = []
        for field, old, new in self.fields:
            fields.append(field if field in _UNTOLD else f"{field}: {_shown(old)} -> {_shown(new)}")
        return f"{self.kind} {self.name}: {self.done}" + (f" ({'; '.join(fields)})" if fields else "")

    def as_json(self) -> dict[str, Any]:
        """Return the change as JSON values, without values that are long or may hold secrets."""
        fields = {field: {} if field in _UNTOLD else {"old": old, "new": new} for field, old, new in self.fields}
        return {"kind": self.kind, "name": self.name, "done": self.done, "fields": fields}


def read_things(client: SyncPrefectClient, file: PrefectFile) -> ServerState:
    """Return the settings of the objects that `file` names, and of others of Overnight, by their kind and name."""
    things: ServerState = {}
    for pool in file.work_pools:
        try:
            existing = client.read_work_pool(pool.name)
        except ObjectNotFound:
            continue
        things["work pool", pool.name] = {
            "type": existing.type,
            "concurrency_limit": existing.concurrency_limit,
            "base_job_template": existing.base_job_template,
            "paused": existing.is_paused,
        }
        for queue in client.read_work_queues(work_pool_name=pool.name):
            things["work queue", f"{pool.name}/{queue.name}"] = {
                "priority": queue.priority,
                "concurrency_limit": queue.concurrency_limit,
                "paused": queue.is_paused,
            }
    limits = {limit.name for limit in file.concurrency_limits}
    for limit in _paged(client.read_global_concurrency_limits):
        if limit.name in limits or limit.name.startswith(OURS):
            things["concurrency limit", limit.name] = {"limit": limit.limit, "active": limit.active}
    for name, deployment in read_deployments(client, file.flow_names).items():
        things["deployment", name] = _settings(deployment)
    for automation in client.read_automations():
        if automation.name.startswith(OURS):
            content = automation.model_dump(mode="json", include={"description", "enabled", "trigger", "actions"})
            content["trigger"].pop("id", None)
            things["automation", automation.name] = content
    return things


def read_deployments(client: SyncPrefectClient, flow_names: Collection[str]) -> dict[str, DeploymentResponse]:
    """Return the deployments of the flows with these names. The keys have the form `FLOW/DEPLOYMENT`."""
    flows = {flow.id: flow.name for flow in _paged(client.read_flows) if flow.name in flow_names}
    deployments = [deployment for deployment in _paged(client.read_deployments) if deployment.flow_id in flows]
    return {f"{flows[deployment.flow_id]}/{deployment.name}": deployment for deployment in deployments}


def changes(before: ServerState, after: ServerState, named: Collection[ServerObject]) -> list[Change]:
    """Compare two states of the server, and return the change of each object. Those in `named` come first."""
    result = []
    for thing in sorted(after, key=lambda thing: thing not in named):
        new = after[thing]
        if thing not in before:
            result.append(Change(*thing, "created"))
            continue
        old = before[thing]
        fields = tuple((field, old.get(field), new[field]) for field in new if old.get(field) != new[field])
        no_change = "unchanged" if thing in named else "left alone"
        result.append(Change(*thing, "changed" if fields else no_change, fields))
    return [*result, *(Change(*thing, "removed") for thing in before if thing not in after)]


def _paged(read: Any) -> Iterator[Any]:
    for page in count():
        items = read(limit=PAGE, offset=page * PAGE)
        yield from items
        if len(items) < PAGE:
            return


def _settings(deployment: DeploymentResponse) -> dict[str, Any]:
    limit, options = deployment.global_concurrency_limit, deployment.concurrency_options
    names = ("description", "version", "paused", "parameters", "entrypoint", "path", "pull_steps", "job_variables")
    return {
        **{name: getattr(deployment, name) for name in names},
        "tags": sorted(deployment.tags),
        "work_queue": f"{deployment.work_pool_name}/{deployment.work_queue_name}",
        "concurrency_limit": limit.limit if limit else None,
        "collision_strategy": options.collision_strategy.value if options else None,
        "schedules": sorted(map(_schedule, deployment.schedules)),
        "form": (deployment.parameter_openapi_schema, deployment.enforce_parameter_schema),
    }


def _schedule(schedule: DeploymentSchedule) -> str:
    return f"{schedule.slug}: {times_of(schedule)}" + ("" if schedule.active else ", paused")


def times_of(schedule: DeploymentSchedule) -> str:
    """Return when a schedule starts runs, such as `0 2 * * * UTC`."""
    values = schedule.schedule.model_dump(mode="json", exclude_none=True)
    return " ".join(str(values[name]) for name in ("cron", "rrule", "interval", "timezone") if name in values)


def _shown(value: Any) -> str:
    text = str(value)
    if value in (None, []):
        text = "none"
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = ", ".join(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
