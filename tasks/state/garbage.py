"""Find the files in a partition's ledger that are no longer needed, from one listing and a few small files.

Some files are always kept: the receipt, the failure and the quarantine, the records of the published generation, and
files of unknown names. The generation that the next run would resume is kept too, unless it is old. No run may work on
the partition meanwhile.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from overnight.tasks.state.run import (
    ATTEMPT,
    RESUMED_FROM,
    Run,
    published_files,
    read_json,
    resumable_generations,
)
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location

Sizes = Mapping[str, int]  # path below a directory -> bytes
Receipt = Mapping[str, Any] | None
PREPARED = re.compile(rf"{ATTEMPT.pattern}(\.cut-off)?")  # see write/sinks/directory_swap.py


@dataclass(frozen=True)
class GarbageItem:
    """Files of a partition to remove together: `what` they are, and `why` they are not needed."""

    partition: str
    what: str
    why: str
    places: tuple[Location, ...]  # the files and directories to remove, in this order
    files: int  # in all of them
    size: int  # in bytes

    def remove(self) -> None:
        """Remove the places, in their order. After an interruption it can be called again."""
        for location in self.places:
            location.remove()


def list_sizes(location: Location) -> dict[str, int]:
    """Return path -> bytes of every file below a directory. A local link is itself a file here, and is not followed."""
    filesystem, root = location.open_filesystem()
    root = root.rstrip("/")
    if is_local(filesystem):
        return dict(_local_sizes(root))
    files = filesystem.find(root, detail=True)
    return {path[len(root) + 1 :]: int(info["size"] or 0) for path, info in files.items()}


def _local_sizes(root: str) -> Iterator[tuple[str, int]]:
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]
        for name in (*names, *links):
            path = f"{folder}/{name}"
            with contextlib.suppress(FileNotFoundError):  # a run removes its temporary files
                yield path[len(root) + 1 :], os.lstat(path).st_size


def removable(
    run: Run, receipt: Receipt, files: Sizes, keep_receipts: int, idle_since: str, kept: Collection[str] = ()
) -> list[GarbageItem]:
    """Return the items of the ledger to remove, in the order of removal. `keep_receipts` is at least 1.

    Records of the generations `kept` stay. Others go, if their last attempt began before `idle_since`, a name or empty.
    """
    ledger = _Ledger(run, files, receipt["generation"] if receipt else "", frozenset(kept))
    items = [*ledger.generations(idle_since)]  # before receipts, which record that they were published
    items += ledger.some("receipts", f"older than the newest {keep_receipts}", ledger.old_receipts(keep_receipts))
    removals = {item.what for item in items}
    items += ledger.some("reports", "of generations that are removed", ledger.old_reports(removals))
    items += ledger.some("lease", "of runs that ended", ledger.old_leases())
    paths = map(str, chain.from_iterable(item.places for item in items))
    trees = tuple(f"{path.removeprefix(f'{run.ledger}/')}/" for path in paths)
    temporary = [path for path in files if path.endswith(".tmp") and not path.startswith(("lease/", *trees))]
    return items + ledger.some("*.tmp", "half-written by a process that died", temporary)


def removable_sample(run: Run, files: Sizes) -> list[GarbageItem]:
    """Return one item with everything that `--limit-rows` left of a partition, its published rows first."""
    own = {path: size for path, size in files.items() if not path.startswith("lease/")}
    if not own:
        return []
    folders = sorted({path.split("/")[0] for path in own})
    sizes = [*_sizes_below(run.target), *own.values()]
    places = (run.target, *(run.ledger / name for name in folders))
    return [GarbageItem(run.partition, "samples", "made with --limit-rows", places, len(sizes), sum(sizes))]


def removable_prepared(run: Run, sink_names: list[str]) -> list[GarbageItem]:
    """Return the directories that interrupted runs of the partition prepared, in the sink or beside it."""
    folders = _prepared(run.sink, sink_names, f"_publishing-{run.partition}-")
    filesystem, path = run.sink.open_filesystem()
    if is_local(filesystem) and not run.partition_directory:
        sink = Location(os.path.realpath(path))
        folders += _prepared(sink.parent, sink.parent.names(), f".{sink.name}-publishing-")
    items = []
    for folder in folders:
        sizes = _sizes_below(folder)
        reason = "prepared by a run that died before it published"
        items.append(GarbageItem(run.partition, folder.name, reason, (folder,), len(sizes), sum(sizes)))
    return items


def _prepared(folder: Location, names: list[str], prefix: str) -> list[Location]:
    places = []
    for name in names:
        # not only by the beginning: a run of eu-west may prepare its files while eu is cleaned
        if name.startswith(prefix) and PREPARED.fullmatch(name, len(prefix)):
            places.append(folder / name)
    return places


def removable_kept(run: Run, places: Sequence[Location]) -> list[GarbageItem]:
    """Return one item with the kept files of replaced publications that are more than the sink should keep."""
    sizes: list[int] = []
    for location in places:
        filesystem, path = location.open_filesystem()
        sizes += [int(info["size"] or 0) for info in filesystem.find(path, detail=True).values()]
    reason = "of more replaced publications than sink.keep_publications"
    return [GarbageItem(run.partition, "kept files", reason, tuple(places), len(sizes), sum(sizes))] if places else []


def _sizes_below(folder: Location) -> list[int]:
    """Return the bytes of each file that is removed with a directory. With a link, none is."""
    return [] if folder.is_link() else list(list_sizes(folder).values())


@dataclass(frozen=True)
class _Ledger:
    """The files of a partition's ledger, and the `published` generation, or an empty string."""

    run: Run
    files: Sizes
    published: str
    kept: frozenset[str]  # generations that can be published again

    def generations(self, idle_since: str) -> Iterator[GarbageItem]:
        """Yield items oldest first. If a newer one went first, a run would resume an older one with its settings."""
        names = sorted(self._names("generations"))
        resumable: set[str] = set()
        if set(names) - {self.published}:
            resumable = resumable_generations(self.run.ledger, self.run.fingerprint, self.published)
        for name in names:
            home = f"generations/{name}"
            if home in self.files:  # a link or a file, which no run made
                continue
            last_attempt = max(self._names(f"{home}/attempts"), default=name)
            is_idle = last_attempt < idle_since
            stays = name == self.published or name in self.kept
            if stays or (name in resumable and not is_idle):
                yield from self._tree(f"{home}/attempts", "plans of attempts that ended")
            if stays:
                for folder, reason in RESUMED_FROM.items():
                    yield from self._tree(f"{home}/{folder}", reason)
            elif name not in resumable or is_idle:
                reason = self._reason(name, last_attempt if name in resumable else "") + self._batches(home)
                for item in self._tree(home, reason):
                    # Without its record a generation is never resumed, even if the rest remains.
                    yield replace(item, places=(self.run.ledger / home / "generation.json", *item.places))

    def _reason(self, name: str, last_attempt: str) -> str:
        """Return why a generation is not needed. `last_attempt` is empty if no run would resume it."""
        if f"generations/{name}/generation.json" not in self.files:
            return "its process died while making or removing it"
        if f"receipts/{name}.json" in self.files:
            return "published, and replaced since"
        if last_attempt:
            date = f"{last_attempt[:4]}-{last_attempt[4:6]}-{last_attempt[6:8]}"
            return f"could be resumed, but its last attempt began {date}"
        return "no run would resume it: a newer one began, or settings changed"

    def _batches(self, home: str) -> str:
        """Return words for the batches of a generation that may be under way; see infer/batch/parts.py."""
        batches = []
        for path in self._below(f"{home}/batches"):
            record = read_json(self.run.ledger / path) if path.endswith(".json") else None
            if record and record.get("state") in ("creating", "created"):
                batches.append(record["batch"] or "one without an id")
        if not batches:
            return ""
        return f"; {len(batches):,} batches at the provider may be paid: {', '.join(batches[:5])}"

    def old_receipts(self, keep: int) -> list[str]:
        """Return the receipts below the newest `keep`, unless the target has one of their files."""
        receipts = sorted(path for path in self._below("receipts") if path.endswith(".json"))
        records = {f"receipts/{name}.json" for name in (self.published, *self.kept)}
        old = [path for path in receipts[:-keep] if path not in records]
        # An old receipt stays if the target has one of its files: only the receipt proves that the file is this job's.
        target_names = set(self.run.target.names()) if old else set()
        garbage = []
        for path in old:
            files = published_files(read_json(self.run.ledger / path))
            if target_names.isdisjoint(file.rsplit("/", 1)[-1] for file in files):
                garbage.append(path)
        return garbage

    def old_reports(self, removals: Collection[str]) -> list[str]:
        """Return the reports of generations that are gone, or whose directory is among `removals`."""
        generations = {self.published}
        for name in self._names("generations"):
            if f"generations/{name}" not in removals:
                generations.add(name)
        return sorted(path for path in self._below("reports") if PurePosixPath(path).stem not in generations)

    def old_leases(self) -> list[str]:
        """Return the leases below the newest, and half-written ones of its number.

        Its number must stay: the next run's fencing token is higher.
        """
        numbers = {}
        for path in self._below("lease"):
            token = path.split("/")[1].split(".")[0]
            if token.isdecimal():
                numbers[path] = int(token)
        newest = max(numbers.values(), default=0)
        old = []
        for path, number in numbers.items():
            if number < newest or (number == newest and path.endswith(".tmp")):
                old.append(path)
        return old

    def some(self, what: str, why: str, paths: list[str]) -> list[GarbageItem]:
        """Return one item with these files, or none if there are no files."""
        if not paths:
            return []
        places = tuple(self.run.ledger / path for path in paths)
        size = sum(self.files[path] for path in paths)
        return [GarbageItem(self.run.partition, what, why, places, len(paths), size)]

    def _tree(self, what: str, why: str) -> list[GarbageItem]:
        """Return one item with the files below a directory, or none if there are no files."""
        items = self.some(what, why, self._below(what))
        return [replace(item, places=(self.run.ledger / what,)) for item in items]

    def _below(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder of the ledger, at any depth."""
        return [path for path in self.files if path.startswith(f"{folder}/")]

    def _names(self, folder: str) -> set[str]:
        """Return the names in a folder of the ledger."""
        depth = folder.count("/") + 1
        return {path.split("/")[depth] for path in self._below(folder)}
