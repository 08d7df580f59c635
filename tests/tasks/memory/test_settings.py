"""The settings of a memory: a folder for all jobs, and limits."""

import pytest
from pydantic import ValidationError

from overnight.tasks.memory.settings import Memory, ModelMemory


@pytest.mark.parametrize("path", ["memory", "hf://datasets/a/b", "s3://key:secret@bucket/memory"])
def test_the_folder_is_a_full_path_that_can_be_written_and_has_no_secret(path: str) -> None:
    with pytest.raises(ValidationError, match="expected a"):
        Memory(path=path)


@pytest.mark.parametrize("limit", [{"gigabytes": 0}, {"days": 0}])
def test_limits_are_above_zero(limit: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Memory(path="/memory", **limit)


def test_a_model_has_a_folder_of_its_own() -> None:
    assert str(ModelMemory("/memory", "key", "name", 90).folder) == "/memory/key"
