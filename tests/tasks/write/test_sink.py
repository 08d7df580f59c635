"""Names of published files: no two attempts of a generation have the same, also if they began in the same second."""

from pathlib import Path

from overnight.tasks.write.sink import file_prefix
from tests.tasks.runs import make_run


def test_attempts_of_the_same_second_publish_files_of_other_names(tmp_path: Path) -> None:
    first, second = (
        file_prefix(make_run(tmp_path, attempt=f"20260102T030405-{name}")) for name in ("aaaaaa", "bbbbbb")
    )
    assert first.endswith("-aaaaaa-")
    assert second.endswith("-bbbbbb-")
