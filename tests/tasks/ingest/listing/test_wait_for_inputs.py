"""Inputs on their way: a marker, a quiet listing, and what a wait that ends in vain says. On a disk and on S3."""

import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.wait_for_inputs import StableListing, wait_for_arrival
from overnight.tasks.ingest.source import WaitFor
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.state.manifest import census
from overnight.tasks.storage.location import File

SHORT = 0.01  # minutes


def wait(path: Path | str, partition: str = "2026-01-02", **settings: Any) -> list[str]:
    """Waits for `PATH/2026-01-02`; what was told."""
    told: list[str] = []
    allow_empty = settings.pop("allow_empty", False)
    source = Csv(path=f"{path}/{{partition}}", wait_for=WaitFor(**settings), allow_empty=allow_empty)
    assert source.wait_for
    wait_for_arrival(source, source.wait_for, partition, told.append)
    return told


@pytest.fixture
def day(tmp_path: Path) -> Path:
    folder = tmp_path / "2026-01-02"
    folder.mkdir()
    (folder / "a.csv").write_text("x\n1\n")
    return folder


def test_what_has_arrived_is_not_waited_for(day: Path) -> None:
    (day / "_SUCCESS").touch()
    assert wait(day.parent, file="_SUCCESS") == []
    time.sleep(0.1)
    assert wait(day.parent, quiet_minutes=0.001) == []


def test_a_marker_that_comes_later_ends_the_wait(day: Path) -> None:
    threading.Timer(0.5, (day / "_SUCCESS").touch).start()
    [told] = wait(day.parent, file="_SUCCESS")
    assert "for at most 60.0 more minutes" in told
    assert f"expected the file {day}/_SUCCESS, found none" in told


def test_a_marker_that_never_comes_fails_with_what_was_expected(tmp_path: Path) -> None:
    words = r"expected the file .*/2026-01-02/_SUCCESS, found none, after waiting for 0.01 minutes. .*timeout_minutes"
    with pytest.raises(InputError, match=words) as caught:
        wait(tmp_path, file="_SUCCESS", timeout_minutes=SHORT)
    assert caught.value.stage == "ingest"


def test_a_marker_may_be_named_after_the_partition_and_lie_deeper(day: Path) -> None:
    (day / "done").mkdir()
    (day / "done/2026-01-02.ok").touch()
    assert wait(day.parent, file="done/{partition}.ok") == []


def test_both_a_marker_and_quiet_are_waited_for(day: Path) -> None:
    (day / "_SUCCESS").touch()
    with pytest.raises(InputError, match=r"no change at .* for 5 minutes, found 1 files and the last change 0.0 min"):
        wait(day.parent, file="_SUCCESS", quiet_minutes=5, timeout_minutes=SHORT)
    (day / "_SUCCESS").unlink()
    with pytest.raises(InputError, match="expected the file"):
        wait(day.parent, file="_SUCCESS", quiet_minutes=0.0001, timeout_minutes=SHORT)


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected inputs at .*2026-01-02, found none"):
        wait(tmp_path, quiet_minutes=0.001, timeout_minutes=SHORT)
    assert len(wait(tmp_path, quiet_minutes=0.001, allow_empty=True)) == 1  # quiet for so long of its own time


def test_each_of_several_paths_is_waited_for_with_a_marker_of_its_own(tmp_path: Path) -> None:
    for name in ("us/2026-01-02/a.csv", "us/2026-01-02/_SUCCESS", "eu/2026-01-02/b_1.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")
    paths = [f"{tmp_path}/us/{{partition}}/", f"{tmp_path}/eu/{{partition}}/b_*.csv"]

    def wait_for(**settings: Any) -> None:
        wanted = WaitFor(timeout_minutes=SHORT, **settings)
        wait_for_arrival(Csv(path=paths), wanted, "2026-01-02")

    with pytest.raises(InputError, match=r"expected the file \S*/eu/2026-01-02/_SUCCESS, found none, after waiting"):
        wait_for(file="_SUCCESS")
    (tmp_path / "eu/2026-01-02/_SUCCESS").touch()
    wait_for(file="_SUCCESS", quiet_minutes=0.0001)
    (tmp_path / "eu/2026-01-02/b_1.csv").unlink()
    with pytest.raises(InputError, match=r"that match \S*/eu/2026-01-02/b_\*\.csv, found none, after waiting"):
        wait_for(file="_SUCCESS", quiet_minutes=0.0001)


def test_on_s3_too(s3: Any) -> None:
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    with pytest.raises(InputError, match="expected inputs at s3"):
        wait(f"s3://{bucket}/in", quiet_minutes=0.001, timeout_minutes=SHORT)
    s3.put_object(Bucket=bucket, Key="in/2026-01-02/a.csv", Body=b"x\n1\n")
    with pytest.raises(InputError, match=r"found 1 files and the last change 0.\d minutes ago"):
        wait(f"s3://{bucket}/in", quiet_minutes=5, timeout_minutes=SHORT)
    with pytest.raises(InputError, match="expected the file s3"):
        wait(f"s3://{bucket}/in", file="_SUCCESS", timeout_minutes=SHORT)
    s3.put_object(Bucket=bucket, Key="in/2026-01-02/_SUCCESS", Body=b"")
    time.sleep(1)  # its times are whole seconds
    assert wait(f"s3://{bucket}/in", file="_SUCCESS", quiet_minutes=0.001) == []


def file(path: str, changed_at: float | None) -> File:
    return File(path, path, 1, path, changed_at)


def test_with_times_what_is_old_is_quiet_at_once() -> None:
    assert StableListing().seconds(census([file("a", 1000), file("b", 4000)]), clock=10_000, own_time=5) == 6000


def test_with_times_from_a_clock_ahead_of_ours_nothing_is_quiet() -> None:
    assert StableListing().seconds(census([file("a", 12_000)]), clock=10_000, own_time=5) == 0


def test_a_removal_leaves_no_time_and_is_no_quiet() -> None:
    quiet = StableListing()
    assert quiet.seconds(census([file("a", 1000), file("b", 1000)]), clock=10_000, own_time=0) == 9000
    assert quiet.seconds(census([file("a", 1000)]), clock=10_010, own_time=10) == 0
    assert quiet.seconds(census([file("a", 1000)]), clock=10_040, own_time=40) == 30


@pytest.mark.parametrize("files", [[file("a", None)], [file("a", None), file("b", 3.0)], []])
def test_without_times_quiet_is_counted_from_the_first_look_and_from_every_change(files: list[File]) -> None:
    quiet = StableListing()
    assert quiet.seconds(census(files), clock=10_000, own_time=100) == 0
    assert quiet.seconds(census(files), clock=10_000, own_time=160) == 60
    assert quiet.seconds(census([*files, file("c", None)]), clock=10_000, own_time=170) == 0
    assert quiet.seconds(census([*files, file("c", None)]), clock=10_000, own_time=200) == 30


@pytest.mark.parametrize("settings", [{}, {"timeout_minutes": 5}, {"file": ""}, {"file": "/x"}, {"quiet_minutes": 0}])
def test_settings_that_wait_for_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WaitFor.model_validate(settings)
