"""What `overnight deploy` makes of the server."""

from pathlib import Path

import pytest

from flows.automations import apply_automations
from tasks.errors import JobError


def test_automations_that_are_not_there_are_missed(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=f"in {tmp_path}/automations, found no such folder"):
        apply_automations(tmp_path / "automations")
