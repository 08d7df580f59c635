"""Inputs on their way: a marker, a quiet listing, and what a wait that ends in vain says."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import StableListing, wait_for_arrival
from overnight.tasks.ingest.source import WaitFor
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.state.manifest import census
from overnight.tasks.storage.location import File

SHORT = 0.005  # minutes


def wait(*places: Path | str, allow_empty: bool = False, **settings: Any) -> list[str]:
    """Waits for `PLACE/2026-01-02`; what was told."""
    told: list[str] = []
    source = Csv(path=[f"{place}/{{partition}}" for place in places], allow_empty=allow_empty)
    wait_for_arrival(source, WaitFor(**settings), "2026-01-02", told.append)
    return told


@pytest.fixture
def day(tmp_path: Path) -> Path:
    folder = tmp_path / "2026-01-02"
    folder.mkdir()
    (folder / "a.csv").write_text("x\n1\n")
    return folder


def test_what_has_arrived_is_not_waited_for_and_a_marker_may_lie_deeper(day: Path) -> None:
    (day / "_SUCCESS").touch()
    (day / "done").mkdir()
    (day / "done/2026-01-02.ok").touch()
    assert wait(day.parent, file="_SUCCESS") == []
    assert wait(day.parent, file="done/{partition}.ok") == []
    time.sleep(0.1)
    assert wait(day.parent, quiet_minutes=0.001) == []


def test_a_marker_that_comes_later_ends_the_wait(day: Path) -> None:
    threading.Timer(0.5, (day / "_SUCCESS").touch).start()
    [told] = wait(day.parent, file="_SUCCESS")
    assert "for at most 60.0 more minutes" in told
    assert f"expected the file {day}/_SUCCESS, found none" in told


def test_both_a_marker_and_quiet_are_waited_for(day: Path) -> None:
    (day / "_SUCCESS").touch()
    with pytest.raises(InputError, match=r"no change at .* for 5 minutes, found 1 files and the last change 0.0 min"):
        wait(day.parent, file="_SUCCESS", quiet_minutes=5, timeout_minutes=SHORT)
    (day / "_SUCCESS").unlink()
    with pytest.raises(InputError, match=r"_SUCCESS, found none, after waiting for 0\.005 min") as caught:
        wait(day.parent, file="_SUCCESS", quiet_minutes=0.0001, timeout_minutes=SHORT)
    assert caught.value.stage == "ingest"


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected inputs at .*2026-01-02, found none"):
        wait(tmp_path, quiet_minutes=0.001, timeout_minutes=SHORT)
    assert len(wait(tmp_path, quiet_minutes=0.001, allow_empty=True)) == 1  # quiet for so long of its own time


def test_each_of_several_paths_is_waited_for_with_a_marker_of_its_own(tmp_path: Path) -> None:
    for name in ("us/2026-01-02/a.csv", "us/2026-01-02/_SUCCESS", "eu/2026-01-02/b_1.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")
    both = {"file": "_SUCCESS", "quiet_minutes": 0.0001, "timeout_minutes": SHORT}
    paths = [f"{tmp_path}/us/{{partition}}/", f"{tmp_path}/eu/{{partition}}/b_*.csv"]
    with pytest.raises(InputError, match=r"expected the file \S*/eu/2026-01-02/_SUCCESS, found none"):
        wait_for_arrival(Csv(path=paths), WaitFor(**both), "2026-01-02")
    (tmp_path / "eu/2026-01-02/_SUCCESS").touch()
    wait_for_arrival(Csv(path=paths), WaitFor(**both), "2026-01-02")
    (tmp_path / "eu/2026-01-02/b_1.csv").unlink()
    with pytest.raises(InputError, match=r"that match \S*/eu/2026-01-02/b_\*\.csv, found none"):
        wait_for_arrival(Csv(path=paths), WaitFor(**both), "2026-01-02")


def file(path: str, changed_at: float | None) -> File:
    return File(path, path, 1, path, changed_at)


A, B = file("a", 1000), file("b", 4000)
# Each look at a listing: its files, the clock, the own time, and for how many seconds they have been quiet.
LOOKS: dict[str, list[tuple[list[File], float, float, float]]] = {
    "old files": [([A, B], 10_000, 5, 6000)],
    "a clock ahead of ours": [([file("a", 12_000)], 10_000, 5, 0)],
    "a file that goes": [([A, B], 10_000, 0, 6000), ([A], 10_010, 10, 0), ([A], 10_040, 40, 30)],
    **{
        name: [(files, 10_000, 100, 0), (files, 10_000, 160, 60)]
        + [([*files, file("c", None)], 10_000, own_time, quiet) for own_time, quiet in ((170, 0), (200, 30))]
        for name, files in {"no time": [file("a", None)], "some times": [file("a", None), B], "no file": []}.items()
    },
}


@pytest.mark.parametrize("looks", LOOKS.values(), ids=LOOKS)
def test_quiet_is_counted_by_the_times_of_the_files_or_from_the_last_change_that_was_seen(looks: list) -> None:
    listing = StableListing()
    for files, clock, own_time, quiet in looks:
        assert listing.seconds(census(files), clock=clock, own_time=own_time) == quiet


@pytest.mark.parametrize("settings", [{}, {"timeout_minutes": 5}, {"file": ""}, {"file": "/x"}, {"quiet_minutes": 0}])
def test_settings_that_wait_for_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WaitFor.model_validate(settings)
