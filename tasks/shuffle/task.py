"""The task shuffle: puts the units in an order by the seed, and packs them into blocks of about equal bytes."""

from dataclasses import replace

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from overnight.tasks.engine.sorted_read import SortedRead
from overnight.tasks.engine.stream import Stream
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.shuffle.order import NoShuffle, ShuffleRows, Sorted
from overnight.tasks.state.run import Run


@task(name="shuffle", task_run_name="shuffle: {shuffle.kind}", cache_policy=NO_CACHE, persist_result=False)
def shuffle(run: Run, shuffle: Shuffle, stream: Stream) -> State[Stream]:
    """Write the order file of this attempt, the list of units to read, in the order of `shuffle`.

    Return the stream, with which later attempts write the same order. It has a seed if the rows within units are mixed.
    """
    if isinstance(shuffle, Sorted):
        stream = replace(stream, read=SortedRead(stream.read, shuffle.by))
        stream.plan_read(run)
        return Completed(message=f"rows that are read together are sorted by {shuffle.by}", data=stream)
    if not isinstance(shuffle, NoShuffle):
        stream = replace(stream, order=shuffle)
    one_row_each = stream.plan_read(run)
    if isinstance(shuffle, NoShuffle):
        return Completed(message="rows stay in the order of the listing", data=stream)
    if isinstance(shuffle, ShuffleRows) and not one_row_each:
        stream = replace(stream, seed=shuffle.seed)
    return Completed(message=f"{shuffle.kind} are in the order of seed {shuffle.seed}", data=stream)
