"""Faults put into the product on purpose, each of which the simulator must find."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.flows.ledger import garbage_collection
from overnight.flows.runs import attempt
from overnight.tasks.state import fenced, lease
from overnight.tasks.state.garbage import removable
from overnight.tasks.state.publications import results_like
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge import merge_parts
from overnight.tasks.write.publish.publish import PUBLISHING
from overnight.tasks.write.sinks import directory_swap, earlier_files, hive_files
from overnight.tasks.write.sinks.hive_files import HiveFiles

Patch = pytest.MonkeyPatch


def fence_off(patch: Patch) -> None:
    """A run does not look if a later one has taken over."""
    patch.setattr(lease, "check", lambda ledger, token: None)


def order_swapped(patch: Patch) -> None:
    """A publish is recorded after the sink has switched, not before."""
    write, commit, late = fenced.write_json, HiveFiles.commit, list[Any]()

    def write_late(run: Any, name: str, content: dict[str, Any]) -> None:
        if name == PUBLISHING and "receipt" in content:
            late.append((run, name, content))
        else:
            write(run, name, content)

    def commit_first(sink: Any, *arguments: Any) -> None:
        commit(sink, *arguments)
        write(*late.pop())

    patch.setattr(fenced, "write_json", write_late)
    patch.setattr(HiveFiles, "commit", commit_first)


def merge_short(patch: Patch) -> None:
    """The merge leaves out the last part."""
    real = merge_parts.selections
    patch.setattr(merge_parts, "selections", lambda *arguments: real(*arguments)[:-1])


def old_files_first(patch: Patch) -> None:
    """On an object store, the replaced files are removed before the receipt names the new ones."""
    commit = HiveFiles.commit

    def commit_and_remove(sink: Any, run: Any, prepared: Any, old: list[str]) -> None:
        commit(sink, run, prepared, old)
        for file in old:
            (run.sink / file).remove()

    patch.setattr(HiveFiles, "commit", commit_and_remove)


def drafts_stay(patch: Patch) -> None:
    """A run that takes over leaves what an earlier one was about to put in place."""
    remove = Location.remove

    def remove_but_drafts(location: Location) -> None:
        if location.parent.name != lease.DRAFTS:
            remove(location)

    patch.setattr(Location, "remove", remove_but_drafts)


def exchange_file_by_file(patch: Patch) -> None:
    """The directory of a partition is not exchanged in one step."""

    def move_each(new: str, target: str) -> None:
        for name in sorted(os.listdir(new)):
            os.replace(f"{new}/{name}", f"{target}/{name}")

    patch.setattr(directory_swap, "exchange", move_each)


def never_completed(patch: Patch) -> None:
    """A publish that had switched is rolled back: its files stay, and no receipt names them."""
    patch.setattr(HiveFiles, "is_committed", lambda *arguments: False)
    patch.setattr(HiveFiles, "discard", lambda *arguments: None)


def undone_rows_run_again(patch: Patch) -> None:
    """After an undo, a run takes the undone settings for new ones."""
    patch.setattr(attempt, "results_like", lambda receipt, run: results_like({**receipt, "undo": None}, run))


def forced_runs_survive_an_undo(patch: Patch) -> None:
    """A run completes a forced one of the settings that were undone since."""
    patch.setattr(attempt, "unfinished_generation", newest_without_receipt)


def newest_without_receipt(ledger: Location, fingerprint: str) -> str | None:
    for name in reversed((ledger / "generations").names()):
        record = read_json(ledger / "generations" / name / "generation.json")
        if record and record["fingerprint"] == fingerprint:
            return None if (ledger / "receipts" / f"{name}.json").exists() else name
    return None


def undo_moves(patch: Patch) -> None:
    """An undo moves the kept files, which another publish that wins needs."""

    def move(source: Location, target: Location) -> None:
        source.copy_to(target)
        source.remove()

    patch.setattr(earlier_files, "_copy", move)


def keep_unfenced(patch: Patch) -> None:
    """A run that was frozen keeps the files that are not its own: those of a later run, which are published."""
    patch.setattr(hive_files, "lease", SimpleNamespace(check=lambda ledger, token: None))


def records_stay(patch: Patch) -> None:
    """A clean leaves the records of each generation that was published once."""

    def of_the_others(run: Run, receipt: Any, files: Any, keep: int, idle: str, kept: Any) -> Any:
        names = [path.split("/")[-1] for path in files if path.startswith("receipts/")]
        return removable(run, receipt, files, keep, idle, {*kept, *(name.removesuffix(".json") for name in names)})

    patch.setattr(garbage_collection, "removable", of_the_others)


BUGS: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        fence_off, order_swapped, merge_short, old_files_first, drafts_stay, exchange_file_by_file,
        never_completed, undone_rows_run_again, forced_runs_survive_an_undo, undo_moves, keep_unfenced, records_stay,
    )
}  # fmt: skip
