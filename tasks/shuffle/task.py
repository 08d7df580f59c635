"""Shuffle: decides the order of reading by seed and packs it into blocks of even bytes."""

import ray.data
from prefect import task
from prefect.cache_policies import NO_CACHE

from overnight.tasks.resources.plan import Plan
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.shuffle.order import NoShuffle, ShuffleRows
from overnight.tasks.shuffle.reorder import reorder
from overnight.tasks.state.run import Run


@task(name="shuffle", task_run_name="shuffle: {shuffle.kind}", cache_policy=NO_CACHE, persist_result=False)
def shuffle(run: Run, shuffle: Shuffle, plan: Plan, dataset: ray.data.Dataset) -> ray.data.Dataset:
    """The dataset with its reading order decided; the read looks the order up when the stream starts."""
    if isinstance(shuffle, NoShuffle):
        return dataset
    one_row_each = reorder(run.order, shuffle)
    if not isinstance(shuffle, ShuffleRows) or one_row_each:
        return dataset
    mixed = dataset.random_shuffle(seed=shuffle.seed, num_cpus=plan.task_cpus)
    mixed.context.execution_options.preserve_order = True  # else the seed mixes blocks in order of arrival
    return mixed
