"""What stands in for Ray Data's own actors, in the process that runs the stream, where Ray is this machine's own.

Ray Data 2.60 has three, which it finds by name and makes where there are none: for the statistics of a dashboard, for
where workers are, and for sharing a cluster among streams. On one machine they have nothing to tell, and each takes a
second of CPU before the stream begins, and wakes up a hundred times a second while it runs.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.data._internal import stats
from ray.data._internal.cluster_autoscaler import default_autoscaling_coordinator as coordinating
from ray.data._internal.execution.operators import actor_pool_map_operator as pooling
from ray.data._internal.utils import cached_ray_internals as cached


class Statistics:
    """In place of `_StatsActor`, whose figures nobody reads."""

    def gen_dataset_id(self) -> str:
        return uuid.uuid4().hex

    def register_dataset(self, *_: Any) -> None: ...

    def update_execution_metrics(self, *_: Any) -> None: ...

    def update_iteration_metrics(self, *_: Any) -> None: ...


class Locations:
    """In place of `ActorLocationTracker`: where workers are is not told, so Ray Data keeps to where it put them."""

    def update_actor_location(self, worker: str, node: str) -> None: ...

    def get_actor_locations(self, workers: list[str]) -> dict[str, None]:
        return dict.fromkeys(workers)


class Handle:
    """Of an object in this process, with as much of an actor's handle as Ray Data uses. Elsewhere it is a copy."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return Handle, (self.of,)

    def __getattr__(self, name: str) -> "Method":
        return Method(getattr(self.of, name))


class Method:
    """Of a `Handle`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def remote(self, *arguments: Any, **settings: Any) -> Any:
        return ray.put(self._function(*arguments, **settings))


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """A stream that runs in the body makes no actors but its workers."""
    coordinator = coordinating._AutoscalingCoordinatorActor(send_resources_request=lambda *_: None)  # no node will come
    statistics, locations, coordination = Handle(Statistics()), Handle(Locations()), Handle(coordinator)
    with contextlib.ExitStack() as stack:
        for module, name, handle in (
            (stats, "get_or_create_stats_actor", statistics),
            (pooling, "get_or_create_actor_location_tracker", locations),
            (cached, "get_or_create_actor_location_tracker", locations),
            (coordinating, "get_or_create_autoscaling_coordinator", coordination),
        ):
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, lambda handle=handle: handle)
        yield
