"""The numbers of a plan that Ray gets, and those that the log shows."""

import pytest

from overnight.tasks.resources.needs import ANY_ACCELERATOR, amount_of
from overnight.tasks.resources.plan import Plan, Pool

FULL = Pool("a", 2, 3, 0.5, 0.25, initial=2, memory=2**30, accelerator_type="T4", resources={"NPU": 1})
BARE = Pool("b", 1, 4, 1, 0)


def test_a_worker_reserves_what_its_pool_says_and_nothing_that_is_not_set() -> None:
    assert FULL.remote_arguments() == {
        "num_cpus": 0.5, "num_gpus": 0.25, "memory": 2**30, "accelerator_type": "T4", "resources": {"NPU": 1},
    }  # fmt: skip
    assert FULL.needs() == {
        "CPU": 0.5, "GPU": 0.25, "memory": 2.0**30, "NPU": 1, "accelerator_type:T4": ANY_ACCELERATOR,
    }  # fmt: skip
    assert BARE.remote_arguments() == {"num_cpus": 1, "num_gpus": 0}
    assert BARE.needs() == {"CPU": 1}


def test_a_plan_needs_each_pool_at_its_least_and_one_task() -> None:
    plan = Plan(0.5, None, (FULL, BARE), (), cpus=4)
    assert plan.needs() == {
        "CPU": 0.5 + 2 * 0.5 + 1, "GPU": 0.5, "memory": 2.0**31, "NPU": 2, "accelerator_type:T4": 2 * ANY_ACCELERATOR,
    }  # fmt: skip
    assert (plan.gpus, plan.device_workers) == (1, 2)


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("memory", 1.5 * 2**30, "1.5 GiB of memory"),
        ("CPU", 2.0, "2 CPU"),
        ("accelerator_type:T4", ANY_ACCELERATOR, "accelerator T4"),
        ("accelerator_type:T4", 0, "no T4"),
    ],
)
def test_an_amount_is_said_in_the_words_of_its_resource(name: str, amount: float, text: str) -> None:
    assert amount_of(name, amount) == text
