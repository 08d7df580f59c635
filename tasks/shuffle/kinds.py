"""The shuffles that a job file may name."""

from typing import Annotated

from pydantic import Field

from overnight.tasks.shuffle.order import NoShuffle, ShuffleBlocks, ShuffleFiles, ShuffleRows, Sorted

Shuffle = Annotated[NoShuffle | ShuffleFiles | ShuffleBlocks | ShuffleRows | Sorted, Field(discriminator="kind")]
