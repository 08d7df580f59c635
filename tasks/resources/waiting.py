"""Waits for what a plan needs of the cluster, each with a limit: other runs use it now, or a node has yet to start."""

import time
from collections.abc import Callable
from typing import Any

import ray

from overnight.tasks.errors import StageFailed
from overnight.tasks.resources.bin_packing import Room
from overnight.tasks.resources.cluster import missing_now, read_nodes
from overnight.tasks.resources.needs import amounts_of
from overnight.tasks.resources.plan import Plan, Pool

WAIT_SECONDS = 0.5  # Ray keeps a reservation for about a second after its task has ended
QUIET_SECONDS = 3.0  # before the first warning
SECONDS_BETWEEN_WARNINGS = 60.0

Warn = Callable[[str], object]


class Wait:
    """A wait that calls `warn` with a phrase once a minute, and ends with an error at its limit; None for no limit."""

    def __init__(self, warn: Warn, busy_seconds: float | None, node_seconds: float | None = None) -> None:
        self._warn, self._busy_seconds, self._node_seconds = warn, busy_seconds, node_seconds
        self._start = time.monotonic()
        self._next_warning = self._start + QUIET_SECONDS

    def for_others(self, missing: str) -> None:
        """Note that other runs use what is `missing`. Raise `StageFailed`, of type Busy, at the limit."""
        self._note(
            f"waiting for {missing}",
            self._busy_seconds,
            f"busy_timeout_seconds) for {missing}. Other runs use it. Run again when they have ended",
            "Busy",
        )

    def for_node(self, needs: str) -> None:
        """Note that no node has these `needs`. Raise `StageFailed`, of type NoNode, at the limit."""
        self._note(
            f"waiting for a node with {needs}, which the cluster has yet to start",
            self._node_seconds,
            f"stall_timeout_seconds) for a node with {needs}, and none came. Read `ray status` on the head node: it "
            "shows why the autoscaler starts none",
            "NoNode",
        )

    def _note(self, warning: str, limit: float | None, explanation: str, error_type: str) -> None:
        now = time.monotonic()
        if limit is not None and now - self._start >= limit:
            message = f"waited {limit:g} s ({explanation}. Staged parts are kept; run again to resume."
            raise StageFailed(message, "infer", error_type)
        if now >= self._next_warning:
            self._warn(warning)
            self._next_warning += SECONDS_BETWEEN_WARNINGS


def wait_until_free(plan: Plan, busy_seconds: float | None, warn: Warn) -> None:
    """Wait until the resources that the plan needs at the start are free. Raise `StageFailed`, of type Busy."""
    wait = Wait(warn, busy_seconds)
    while missing := missing_now(plan):
        wait.for_others(missing)
        time.sleep(WAIT_SECONDS)


def wait_until_started(
    actor: Any, pool: Pool, busy_seconds: float | None, node_seconds: float | None, warn: Warn
) -> None:
    """Wait until Ray has started `actor`, which has the reservation of a worker in `pool`.

    Raise `StageFailed`, of type NoNode or Busy. An error of the actor itself is left to its next call.
    """
    needs = pool.needs()
    amounts = amounts_of(needs)
    wait = Wait(warn, busy_seconds, node_seconds)
    ready = actor.__ray_ready__.remote()
    while not ray.wait([ready], timeout=WAIT_SECONDS)[0]:
        if Room(read_nodes()).take(needs):
            wait.for_others(amounts)
        else:
            wait.for_node(amounts)
