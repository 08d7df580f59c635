"""The shuffles of a job: `overnight.shuffles.Files(seed=1)` is `shuffle: {kind: files, seed: 1}`."""

from overnight.tasks.shuffle.order import NoShuffle, Sorted
from overnight.tasks.shuffle.order import ShuffleBlocks as Blocks
from overnight.tasks.shuffle.order import ShuffleFiles as Files
from overnight.tasks.shuffle.order import ShuffleRows as Rows

__all__ = ["Blocks", "Files", "NoShuffle", "Rows", "Sorted"]
