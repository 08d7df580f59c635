"""All undocumented parts of prefect-ray 0.6 that Overnight uses: the state of a future, and the end of a runner's Ray.

`OvernightTaskRunner` also overrides `_run_prefect_task`, which the runner sends to a Ray worker.
`tests/flows/runs/test_prefect_ray_internals.py` fails if any of them moves.
"""

from typing import Any, TypeVar

import prefect_ray
from prefect.client.schemas.objects import State

from overnight.tasks.errors import OvernightError

WRITTEN_FOR = "0.6."

if not prefect_ray.__version__.startswith(WRITTEN_FOR):
    raise OvernightError(
        f"expected prefect-ray {WRITTEN_FOR}*, whose task runner Overnight extends; found {prefect_ray.__version__}. "
        f"Install it: pip install 'prefect-ray=={WRITTEN_FOR}*'."
    )

from prefect_ray.task_runners import PrefectRayFuture, RayTaskRunner  # noqa: E402 - only of that version

R = TypeVar("R")


class EndableFuture(PrefectRayFuture[R]):
    """A future that accepts a final state, because its task's process may end before it reports one."""

    @property
    def has_ended(self) -> bool:
        return self._final_state is not None

    def end_as(self, state: State[Any]) -> None:
        self._final_state = state


class OpenRayTaskRunner(RayTaskRunner[R]):
    """A task runner that may use a Ray that already runs. It can be set to end that Ray when it ends itself."""

    def shut_down_ray_at_exit(self, is_owned: bool) -> None:
        """Set whether Ray ends when the runner ends. `is_owned` is True if this runner started Ray."""
        self._owns_ray = is_owned


def run_prefect_task(*arguments: Any, **named: Any) -> State[Any]:
    """Run a Prefect task in the Ray worker that calls this, and return the task's final state."""
    state: State[Any] = RayTaskRunner._run_prefect_task(*arguments, **named)
    return state
