"""The plan, for clusters that nobody here has.

The two rules of `tasks/resources/planner.py`: the workers' CPUs and one Ray task of every kind fit into the cluster
together; and a Ray task that reserves nothing has its number limited instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overnight.tasks.errors import PlanError
from overnight.tasks.resources.bin_packing import Room
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.planner import make_plan, workers_in_memory

Node = Mapping[str, float]


@dataclass(frozen=True)
class Model:
    """What a plan asks of a predictor."""

    workers: int | tuple[int, int] | None = None
    num_cpus: float | None = None
    num_gpus: float = 0
    memory: int | None = None
    accelerator_type: str | None = None
    resources: dict[str, float] = field(default_factory=dict)
    name: str | None = None
    kind: str = "python"
    placement: str = "separate"


def node(cpus: float, **more: float) -> Node:
    return {"CPU": cpus, **more}


def hold_rules(plan: Plan, models: Sequence[Model], nodes: Sequence[Node]) -> None:
    """The rules, with every pool at its largest: workers placed where they fit, and a task beside them."""
    workers = [pool.needs() for pool in plan.pools for _ in range(pool.maximum)]
    room = Room(nodes)
    assert room.take_all(workers)
    if plan.task_cpus:
        assert room.take({"CPU": plan.task_cpus})
        left = sum(found["CPU"] for found in nodes) - sum(worker.get("CPU", 0) for worker in workers)
        assert plan.task_cpus <= left / len(nodes) + 1e-6, "wherever the workers are put, one node has room for a task"
    else:
        assert plan.task_concurrency is not None
        assert plan.task_concurrency >= 1
    for pool, model in zip(plan.pools, models, strict=True):
        assert 1 <= pool.minimum <= pool.maximum
        if isinstance(model.workers, int):
            assert pool.minimum == pool.maximum == model.workers
        elif model.workers:
            assert (pool.minimum, pool.maximum <= model.workers[1]) == (model.workers[0], True)
        if model.num_cpus is not None:
            assert pool.num_cpus == model.num_cpus
        assert pool.num_gpus == model.num_gpus
    assert all(pool.minimum <= pool.initial <= pool.maximum for pool in plan.pools)


models = st.builds(
    Model,
    workers=st.none() | st.integers(1, 6) | st.tuples(st.integers(1, 3), st.integers(3, 6)),
    num_cpus=st.none() | st.sampled_from([0, 0.25, 0.5, 1, 1.5, 2, 16]),
    num_gpus=st.sampled_from([0, 0, 0, 0.3, 0.5, 0.6, 1, 2]),
    memory=st.none() | st.sampled_from([2**30, 3 * 2**30]),
    resources=st.sampled_from([{}, {}, {"special": 1}]),
)
nodes = st.builds(
    lambda cpus, gpus, special: {"CPU": cpus, "memory": 8 * 2**30, "GPU": gpus, "special": special},
    st.sampled_from([1, 2, 4, 16]), st.sampled_from([0, 0, 1, 2, 3]), st.sampled_from([0, 1, 2]),
)  # fmt: skip


def fewest(model: Model) -> int:
    return 1 if model.workers is None else model.workers if isinstance(model.workers, int) else model.workers[0]


@given(st.lists(models, max_size=3), st.lists(nodes, min_size=1, max_size=4))
@example([Model(num_cpus=1), Model(num_cpus=16)], [{"CPU": cpus, "GPU": 0, "special": 0} for cpus in (16, 1)])
@example(
    [Model(num_gpus=0.3, memory=3 * 2**30), Model(num_gpus=0.5)],
    [{"CPU": 1, "memory": 8 * 2**30, "GPU": gpus, "special": 0} for gpus in (1, 2)],
)
def test_every_plan_that_is_made_holds_the_rules_and_is_the_same_again(asked: list[Model], cluster: list[Node]):
    before = [dict(found) for found in cluster]
    try:
        plan = make_plan(asked, cluster)
    except PlanError:
        needs = [{"CPU": m.num_cpus or 0, "GPU": m.num_gpus, "memory": m.memory or 0, **m.resources} for m in asked]
        wanted = [
            {name: amount for name, amount in each.items() if amount}
            for each, model in zip(needs, asked, strict=True)
            for _ in range(fewest(model))
        ]
        assert not Room(cluster).take_all(wanted) or not all(Room(cluster).take(one) for one in wanted)
        return
    hold_rules(plan, asked, cluster)
    assert make_plan(asked, cluster) == plan
    assert cluster == before


@pytest.mark.parametrize(
    ("asked", "cluster", "most"),
    [
        ([], [node(1)], []),
        ([Model()], [node(1)], [1]),
        ([Model()], [node(16)], [15]),
        ([Model(), Model()], [node(1)], [1, 1]),
        ([Model(), Model()], [node(16)], [8, 7]),
        ([Model(workers=(1, 4))], [node(16)], [4]),
        ([Model(workers=(1, 100))], [node(2)], [1]),
        ([Model(workers=(2, 4))], [node(2)], [2]),
        ([Model(num_gpus=1)], [node(16, GPU=8)], [8]),
        ([Model(num_gpus=1)], [node(4, GPU=8)], [8]),  # CPUs shrink before GPUs idle
        ([Model(num_gpus=1), Model(num_gpus=1)], [node(16, GPU=3)], [2, 1]),
        ([Model(num_gpus=0.6)], [node(4, GPU=2)], [2]),
        ([Model(num_gpus=0.5)], [node(4, GPU=2)], [4]),
        ([Model(num_gpus=0.3), Model(num_gpus=0.7)], [node(4, GPU=1)], [1, 1]),
        ([Model(num_gpus=0.6), Model(num_gpus=0.6)], [node(4, GPU=1)] * 2, [1, 1]),
        ([Model(num_cpus=1, num_gpus=1)], [node(4, GPU=4)], [3]),  # one CPU for reading
        ([Model(num_cpus=0.5)], [node(1)] * 4, [4]),  # beside a task on each node
        ([Model(num_cpus=1)], [node(1)] * 4, [3]),
        ([Model(num_cpus=4)], [node(4)] * 4, [3]),
        ([Model(num_cpus=4, num_gpus=1)], [node(4, GPU=1)] * 3 + [node(1)], [3]),  # the node without a GPU reads
        *(([Model(workers=count)], [node(1)] * 4, [count]) for count in (1, 3, 4, 5, 11)),
    ],
)
def test_workers_use_what_the_nodes_have_and_leave_room_for_reading(
    asked: list[Model], cluster: list[Node], most: list[int]
):
    plan = make_plan(asked, cluster)
    assert [pool.maximum for pool in plan.pools] == most
    assert plan.task_cpus > 0
    hold_rules(plan, asked, cluster)


def test_a_model_that_prepares_its_own_rows_gets_a_worker_a_cpu():
    beside = Model(placement="colocated")
    plan = make_plan([beside], [node(4), node(2.5), {"GPU": 1}])
    assert (plan.is_colocated, plan.pools[0].maximum, plan.pools[0].initial) == (True, 6, 6)
    assert plan.needs()["CPU"] == pytest.approx(1)
    growing = make_plan([beside], [node(2)], [node(62)])
    assert (growing.pools[0].initial, growing.pools[0].maximum) == (2, 64)
    assert not make_plan([Model()], [node(4)]).is_colocated


def test_the_only_model_on_cpus_that_reserves_nothing_prepares_its_own_rows():
    auto = Model(placement="auto")
    assert make_plan([auto], [node(4)]).is_colocated
    assert not make_plan([auto, auto], [node(4)]).is_colocated
    assert not make_plan([auto], [node(0.5), node(0.5)]).is_colocated
    for asked in ({"workers": 2}, {"num_cpus": 0}, {"num_gpus": 1}, {"memory": 1}, {"resources": {"NPU": 1}}):
        assert not make_plan([Model(placement="auto", **asked)], [node(4, GPU=1, memory=9, NPU=1)]).is_colocated


def test_memory_limits_how_many_workers_there_are():
    gib = 2**30
    for memory, most in ((16, 2), (17, 3), (1, 1)):  # the trial has shown that one fits
        assert workers_in_memory(5 * gib, [node(16, memory=memory * gib)]) == most
    assert workers_in_memory(5 * gib, [node(16, memory=11 * gib)] * 2) == 2
    assert workers_in_memory(0, [node(1)]) > 1000


def test_a_pool_that_asks_for_every_core_gets_it_and_reading_is_limited_in_number():
    plan = make_plan([Model(num_cpus=16)], [node(16)])
    assert (plan.task_cpus, plan.task_concurrency) == (0, 8)
    assert "8 at a time" in plan.notes[0]
    assert make_plan([Model(num_cpus=1)], [node(1)]).task_concurrency == 1


def test_reservations_that_nobody_pinned_shrink_and_say_so():
    plan = make_plan([Model(), Model()], [node(2)])
    assert [pool.num_cpus for pool in plan.pools] == [0.5, 0.5]
    assert "0.5 CPU instead of 1" in plan.notes[0]
    assert plan.needs() == {"CPU": 2.0}


T4 = {"CPU": 8.0, "GPU": 1.0, "accelerator_type:T4": 1.0}
H100 = Model(accelerator_type="H100", num_gpus=1)


@pytest.mark.parametrize(
    ("asked", "cluster", "addable_nodes", "message"),
    [
        (
            [Model(num_gpus=1)],
            [node(4)],
            [],
            r"inference python needs 1 x 1 GPU; the cluster has 0 GPU\. Set num_gpus: 0",
        ),
        ([Model(num_gpus=1), Model(num_gpus=1, name="b")], [node(4, GPU=1)], [], "b .*the models before it 1 GPU"),
        ([Model(num_gpus=0.6, workers=3)], [node(4, GPU=2)], [], "3 workers need 0.6 GPU each"),
        ([Model(num_gpus=2, workers=2)], [node(4, GPU=3), node(4, GPU=1)], [], "2 workers need 2 GPU each"),
        ([Model(num_gpus=1.5)], [node(4, GPU=2)], [], "a whole number or less than 1, found 1.5"),
        ([Model(num_cpus=3)], [node(2), node(2)], [], "needs 3 CPU on one node; no node has that"),
        ([Model(num_cpus=3, workers=2)], [node(4)], [], "needs 2 x 3 CPU; the cluster has 4 CPU"),
        ([Model(num_cpus=1.5, workers=4)], [node(3), node(2), node(1)], [], "4 workers need 1.5 CPU each"),
        ([Model(num_cpus=1, num_gpus=1)], [node(4), {"GPU": 1}], [], "needs 1 CPU, 1 GPU on one node"),
        ([Model(memory=2**34)], [node(2, memory=2**33)], [], r"16\.0 GiB of memory; the cluster has 8\.0 GiB"),
        ([Model(resources={"special": 1})], [node(2)], [], "1 special; the cluster has 0 special"),
        ([H100], [node(2, GPU=1)], [], "accelerator H100; the cluster has no H100"),
        ([], [{"GPU": 1}], [], "no CPU to run on"),
        ([], [], [], "no CPU to run on"),
        ([Model(placement="colocated")] * 2, [node(8)], [], "the only model of a job, found 2 models"),
        ([Model(placement="colocated")], [node(0.5), node(0.5)], [], "needs a node with a whole CPU"),
        ([Model(num_gpus=4)], [node(2)], [T4] * 4, "4 GPU on one node; no node has that, and none that may start"),
        ([Model(num_cpus=9)], [node(2)], [T4] * 4, "9 CPU on one node; no node has that, and none that may start"),
        ([Model(num_gpus=1, workers=5)], [node(2)], [T4] * 4, "5 x 1 GPU; the cluster has and may start 4 GPU"),
        ([Model(num_gpus=0.6)] * 2, [node(4, GPU=1)], [], "and the models before it 0.6 GPU; the cluster has 1 GPU"),
        ([H100], [node(2)], [T4] * 4, "accelerator H100; the cluster has and may start no H100"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_need_and_the_find(
    asked: list[Model], cluster: list[Node], addable_nodes: list[Node], message: str
):
    with pytest.raises(PlanError, match=message):
        make_plan(asked, cluster, addable_nodes)


@given(st.lists(models, max_size=3), st.lists(nodes, min_size=1, max_size=3), st.lists(nodes, min_size=1, max_size=3))
def test_a_plan_that_may_grow_holds_the_rules_at_its_largest_and_starts_on_the_nodes_alive_if_it_can(
    asked: list[Model], cluster: list[Node], addable_nodes: list[Node]
):
    try:
        plan = make_plan(asked, cluster, addable_nodes)
    except PlanError:
        with pytest.raises(PlanError):
            make_plan(asked, [*cluster, *addable_nodes])
        return
    hold_rules(plan, asked, [*cluster, *addable_nodes])
    try:
        alone = make_plan(asked, cluster)
    except PlanError:
        assert [pool.initial for pool in plan.pools] == [fewest(model) for model in asked]
        return
    assert [pool.initial for pool in plan.pools] == [pool.initial for pool in alone.pools]


def test_a_group_that_scales_from_zero_is_planned_with_and_starts_with_one_worker():
    plan = make_plan([Model(num_gpus=1, accelerator_type="T4")], [node(4)], [T4] * 16)
    assert (plan.pools[0].minimum, plan.pools[0].initial, plan.pools[0].maximum) == (1, 1, 16)
    plan = make_plan([Model(num_gpus=1)], [node(4), T4, T4], [T4] * 14)
    assert (plan.pools[0].minimum, plan.pools[0].maximum) == (2, 16)
    plan = make_plan([Model(resources={"NPU": 1}, workers=(1, 8))], [node(4)], [node(4, NPU=2)] * 2)
    assert (plan.pools[0].minimum, plan.pools[0].maximum) == (1, 4)


def test_a_cluster_whose_head_has_no_cpu_is_planned_with_the_nodes_to_come():
    plan = make_plan([Model(workers=2)], [{"memory": 1.0}], [node(4)] * 2)
    assert (plan.pools[0].initial, plan.task_cpus) == (2, 1), "Ray Data hands out whole CPUs: less would leave one idle"
    plan = make_plan([Model(placement="auto")], [{"memory": 1.0}], [node(4)] * 2)
    assert (plan.is_colocated, plan.pools[0].initial, plan.pools[0].maximum) == (True, 1, 8)


def test_a_large_cluster_is_planned_in_a_moment():
    assert make_plan([Model()], [node(4)], [node(64)] * 1000).pools[0].maximum > 60_000
    plan = make_plan([Model(), Model(num_gpus=1)], [node(64, GPU=8)] * 100)
    assert plan.pools[1].minimum == 800
    assert plan.pools[0].maximum > 1000


def test_workers_on_other_accelerators_count_as_workers_on_a_device_and_those_with_a_licence_do_not():
    models = [
        Model(name="npu", workers=2, resources={"NPU": 0.5}),
        Model(name="licensed", workers=1, resources={"licence": 1}),
        Model(name="gpu", workers=1, num_gpus=1),
    ]
    plan = make_plan(models, [{"CPU": 8, "GPU": 1, "NPU": 1, "licence": 1}])
    assert (plan.device_workers, plan.gpus) == (3, 1)
