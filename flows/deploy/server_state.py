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

    `kind` is such as `work pool`. `done` is `left alone` for an object that no applied file names and that did not
    change.
    """

    kind: str
    name: str
    done: str  # created, changed, unchanged, removed, left alone
    fields: tuple[tuple[str, Any, Any], ...] = ()

    def __str__(self) -> str:
        told = [
            field if field in _UNTOLD else f"{field}: {_shown(old)} -> {_shown(new)}" for field, old, new in self.fields
        ]
        return f"{self.kind} {self.name}: {self.done}" + (f" ({'; '.join(told)})" if told else "")

    def as_json(self) -> dict[str, Any]:
        """Return the change as JSON values, without values that are long or may hold secrets."""
        fields = {
            field: {} if field in _UNTOLD else {"old": _plain(old), "new": _plain(new)}
            for field, old, new in self.fields
        }
        return {"kind": self.kind, "name": self.name, "done": self.done, "fields": fields}


def read_things(client: SyncPrefectClient, file: PrefectFile) -> ServerState:
    """Return the settings of pools, queues, limits, deployments and automations on the server, by their kind and name.

    These are the objects that `file` names. Other queues of its pools, deployments of its flows, and objects whose
    names begin with `overnight` are included too.
    """
    things: ServerState = {}
    for pool in file.work_pools:
        try:
            found = client.read_work_pool(pool.name)
        except ObjectNotFound:
            continue
        things["work pool", pool.name] = {
            "type": found.type,
            "concurrency_limit": found.concurrency_limit,
            "base_job_template": found.base_job_template,
            "paused": found.is_paused,
        }
        for queue in client.read_work_queues(work_pool_name=pool.name):
            things["work queue", f"{pool.name}/{queue.name}"] = {
                "priority": queue.priority,
                "concurrency_limit": queue.concurrency_limit,
                "paused": queue.is_paused,
            }
    named = {limit.name for limit in file.concurrency_limits}
    for limit in _paged(client.read_global_concurrency_limits):
        if limit.name in named or limit.name.startswith(OURS):
            things["concurrency limit", limit.name] = {"limit": limit.limit, "active": limit.active}
    for name, deployment in read_deployments(client, file.flow_names).items():
        things["deployment", name] = _deployment(deployment)
    for automation in client.read_automations():
        if automation.name.startswith(OURS):
            content = automation.model_dump(mode="json", include={"description", "enabled", "trigger", "actions"})
            content["trigger"].pop("id", None)
            things["automation", automation.name] = content
    return things


def read_deployments(client: SyncPrefectClient, flow_names: Collection[str]) -> dict[str, DeploymentResponse]:
    """Return the deployments of the flows with these names. The keys have the form `FLOW/DEPLOYMENT`."""
    flows = {flow.id: flow.name for flow in _paged(client.read_flows) if flow.name in flow_names}
    found = [deployment for deployment in _paged(client.read_deployments) if deployment.flow_id in flows]
    return {f"{flows[deployment.flow_id]}/{deployment.name}": deployment for deployment in found}


def changes(before: ServerState, after: ServerState, named: Collection[ServerObject]) -> list[Change]:
    """Compare two states of the server, and return the change of each object.

    The objects in `named`, which the applied file defines, come first. Another object without a change is `left alone`.
    """
    found = []
    for kind, name in sorted(after, key=lambda thing: thing not in named):
        old, new = before.get((kind, name)), after[kind, name]
        if old is None:
            found.append(Change(kind, name, "created"))
            continue
        fields = tuple((field, old.get(field), new[field]) for field in new if old.get(field) != new[field])
        left = (kind, name) not in named and not fields
        found.append(Change(kind, name, "left alone" if left else "changed" if fields else "unchanged", fields))
    return [*found, *(Change(kind, name, "removed") for kind, name in before if (kind, name) not in after)]


def _paged(read: Any) -> Iterator[Any]:
    for page in count():
        found = read(limit=PAGE, offset=page * PAGE)
        yield from found
        if len(found) < PAGE:
            return


def _deployment(found: DeploymentResponse) -> dict[str, Any]:
    limit, options = found.global_concurrency_limit, found.concurrency_options
    same = ("description", "version", "paused", "parameters", "entrypoint", "path", "pull_steps", "job_variables")
    return {
        **{name: getattr(found, name) for name in same},
        "tags": sorted(found.tags),
        "work_queue": f"{found.work_pool_name}/{found.work_queue_name}",
        "concurrency_limit": limit.limit if limit else None,
        "collision_strategy": options.collision_strategy.value if options else None,
        "schedules": sorted(_schedule(schedule) for schedule in found.schedules),
        "form": (found.parameter_openapi_schema, found.enforce_parameter_schema),
    }


def _schedule(found: DeploymentSchedule) -> str:
    values = found.schedule.model_dump(mode="json", exclude_none=True)
    when = " ".join(str(values[name]) for name in ("cron", "rrule", "interval", "timezone") if name in values)
    return f"{found.slug}: {when}" + ("" if found.active else ", paused")


def _shown(value: Any) -> str:
    text = "none" if value in (None, []) else ", ".join(value) if _is_texts(value) else str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
