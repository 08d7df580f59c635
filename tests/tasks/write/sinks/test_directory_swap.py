"""Two directories exchanged in one step, with what belongs to others left where it is."""

import os
import tempfile
from pathlib import Path

import pytest

from overnight.tasks.write.sinks import directory_swap


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """`new` with a file of ours, and `target` with an old one, somebody's, and a directory of state."""
    new, target = tmp_path / ".new", tmp_path / "target"
    for path in (new / "ours-1", target / "ours-0", target / "theirs", target / "_state" / "ledger"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    return str(new), str(target)


def is_ours(name: str) -> bool:
    return name.startswith("ours")


def test_what_is_hidden_is_reached_at_every_instant_and_ends_as_the_same_directory(pair: tuple[str, str]):
    new, target = pair
    inode = os.stat(f"{target}/_state").st_ino
    directory_swap.exchange(new, target)
    assert Path(target, "_state/ledger").read_text() == "ledger"
    assert os.listdir(target) != ["_state"]
    directory_swap.restore(new, target, is_ours)
    assert not os.path.islink(f"{target}/_state")
    assert os.stat(f"{target}/_state").st_ino == inode
    assert sorted(os.listdir(target)) == ["_state", "ours-1", "theirs"]
    directory_swap.remove(new, is_ours)
    assert not os.path.exists(new)


def test_a_link_under_a_name_of_the_publish_is_removed_and_not_followed(pair: tuple[str, str], tmp_path: Path) -> None:
    new, _ = pair
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").touch()
    os.symlink(tmp_path / "outside", f"{new}/ours-linked")
    directory_swap.remove(new, is_ours)
    assert not os.path.exists(new)
    assert (tmp_path / "outside/file").exists()


def test_after_a_withdrawal_nothing_can_be_exchanged_any_more(pair: tuple[str, str]):
    new, target = pair
    directory_swap.withdraw(new, target, is_ours)
    with pytest.raises(FileNotFoundError):
        directory_swap.exchange(new, target)
    assert sorted(os.listdir(target)) == ["_state", "ours-0", "theirs"]
    directory_swap.remove(new, is_ours)
    assert sorted(os.listdir(os.path.dirname(new))) == ["target"]


def test_a_name_that_is_there_again_is_not_overwritten_and_not_lost(pair: tuple[str, str]):
    new, target = pair
    directory_swap.exchange(new, target)
    Path(target, "theirs").write_text("newer")
    directory_swap.restore(new, target, is_ours)
    directory_swap.remove(new, is_ours)
    assert (Path(target, "theirs").read_text(), Path(new, "theirs").read_text()) == ("newer", "theirs")


@pytest.mark.parametrize("done", [1, 2])
def test_renames_that_were_cut_off_where_nothing_can_be_swapped_are_put_right(pair: tuple[str, str], done: int):
    new, target = pair
    os.rename(target, new + directory_swap.FORMER)
    if done == 2:
        os.rename(new, target)
    directory_swap.restore(new, target, is_ours)
    assert sorted(os.listdir(target)) == ["_state", f"ours-{done - 1}", "theirs"]


def test_whether_a_directory_can_move_is_found_out_by_moving_one(tmp_path: Path):
    (tmp_path / "target").mkdir()
    assert directory_swap.can_move(f"{tmp_path}/.beside", f"{tmp_path}/target")
    assert not directory_swap.can_move(f"{tmp_path}/missing/.beside", f"{tmp_path}/target")
    if os.path.isdir("/dev/shm") and os.stat("/dev/shm").st_dev != os.stat(tmp_path).st_dev:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
            assert not directory_swap.can_move(f"{elsewhere}/.beside", f"{tmp_path}/target")
            assert os.listdir(elsewhere) == []
    assert os.listdir(tmp_path / "target") == []
