"""The setting `memory` of a job, and what the stage of a model or a step gets of it."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from overnight.tasks.config.settings import Settings
from overnight.tasks.reuse.settings import SharedFolder
from overnight.tasks.storage.location import Location


class Memory(Settings):
    """Where the results of models and steps are remembered by row, for how long, and how much."""

    path: SharedFolder
    gigabytes: Annotated[PositiveFloat, Field(description="A publish removes the oldest results beyond this size.")] = (
        50
    )
    days: Annotated[PositiveInt, Field(description="A result serves for this long.")] = 90


@dataclass(frozen=True)
class ModelMemory:
    """The results of one model or step by row. `key` is that of the model, and `name` its name in this job."""

    path: str
    key: str
    name: str
    days: int
    is_read: bool = True  # False: all rows are computed, and their results replace the remembered ones

    @property
    def folder(self) -> Location:
        return Location(self.path) / self.key
