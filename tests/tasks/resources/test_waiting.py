"""Waits for the cluster: they say what they wait for, and end at their limit."""

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from overnight.tasks.errors import StageFailed
from overnight.tasks.resources import waiting
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.waiting import wait_until_free, wait_until_started

CPUS = 2  # of the session's Ray


class Nothing:
    pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.0)


@pytest.fixture
def actor(ray_session: None) -> Iterator[Callable[..., Any]]:
    """Make actors that end with the test. A traceback would keep them, and their CPUs, until a garbage collection."""
    made: list[Any] = []

    def make(kind: type = Nothing, **options: Any) -> Any:
        made.append(ray.remote(kind).options(**options).remote())
        return made[-1]

    yield make
    for each in made:
        ray.kill(each)


def pool(**needs: float) -> Pool:
    return Pool("m", 1, 1, needs.pop("num_cpus", 0), needs.pop("num_gpus", 0), resources=needs)


def test_a_node_that_does_not_come_ends_the_wait_with_what_was_needed(actor: Callable[..., Any]) -> None:
    warned: list[str] = []
    waiting_one = actor(num_gpus=1, resources={"TPU": 1})
    with pytest.raises(StageFailed, match=r"waited 0\.6 s \(stall_timeout_seconds\) for a node with 1 GPU, 1 TPU") as e:
        wait_until_started(waiting_one, pool(num_gpus=1, TPU=1), 600, 0.6, warned.append)
    assert (e.value.stage, e.value.error_type) == ("infer", "NoNode")
    assert warned[0] == "waiting for a node with 1 GPU, 1 TPU, which the cluster has yet to start"


def test_what_others_hold_ends_the_waits_for_a_reservation_and_for_a_plan(actor: Callable[..., Any]) -> None:
    ray.get(actor(num_cpus=CPUS).__ray_ready__.remote(), timeout=120)
    warned: list[str] = []
    waiting_one = actor(num_cpus=1)
    with pytest.raises(StageFailed, match=r"waited 0\.6 s \(busy_timeout_seconds\) for 1 CPU\. Other runs use it") as e:
        wait_until_started(waiting_one, pool(num_cpus=1), 0.6, 0.1, warned.append)
    assert e.value.error_type == "Busy"
    assert warned[0] == "waiting for 1 CPU"
    with pytest.raises(StageFailed, match=r"busy_timeout_seconds\) for 2 CPU; 0 CPU of 2 free") as e:
        wait_until_free(Plan(1, None, (pool(num_cpus=1),), ()), 0.6, print)
    assert e.value.error_type == "Busy"


def test_what_is_free_is_taken_and_an_actor_s_own_error_is_left_to_its_call(actor: Callable[..., Any]) -> None:
    class Fails:
        def __init__(self) -> None:
            raise ValueError("mine")

    wait_until_free(Plan(1, None, (pool(num_cpus=1),), ()), 60, print)
    wait_until_started(actor(Fails, num_cpus=1), pool(num_cpus=1), 60, 60, print)


def test_a_warning_comes_once_a_minute_and_without_a_limit_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=10)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    warned: list[str] = []
    wait = waiting.Wait(warned.append, None)
    for _ in range(13):
        wait.for_others("1 GPU")
    assert warned == ["waiting for 1 GPU"] * 3
