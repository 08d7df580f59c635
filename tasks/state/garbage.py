"""Find the files in a partition's ledger that are no longer needed, from one listing and a few small files.

Some files are always kept: the receipt, the failure and the quarantine, the records of the published generation, and
files of unknown names. The generation that the next run would resume is kept too, unless it is old. No run may work on
the partition meanwhile.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from overnight.tasks.state.run import Run, published_files, read_json, unfinished_generation, unfinished_retry
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location

Sizes = Mapping[str, int]  # path below a directory -> bytes
Receipt = Mapping[str, Any] | None


@dataclass(frozen=True)
class GarbageItem:
    """Files of a partition to remove together: `what` they are, and `why` they are not needed.

    `places` are the files and directories to remove, in this order. `files` is the number of all files in them, and
    `size` their bytes.
    """

    partition: str
    what: str
    why: str
    places: tuple[Location, ...]
    files: int
    size: int

    def remove(self) -> None:
        """Remove the places, in their order. After an interruption it can be called again."""
        for place in self.places:
            place.remove()


def list_sizes(location: Location) -> dict[str, int]:
    """Return path -> bytes of every file below the directory `location`; empty if the directory does not exist.

    The paths are relative to the directory. Object stores need one request per thousand files. A local link is itself a
    file here, and is not followed: a run wrote nothing to where it leads.
    """
    filesystem, root = location.open_filesystem()
    root = root.rstrip("/")
    if is_local(filesystem):
        return dict(_local_sizes(root))
    return {path[len(root) + 1 :]: int(info["size"] or 0) for path, info in filesystem.find(root, detail=True).items()}


def _removed_with(place: Location) -> dict[str, int]:
    """Return the files that are removed with a directory, as `list_sizes` does. With a link, none is."""
    return {} if place.is_link() else list_sizes(place)


def _local_sizes(root: str) -> Iterator[tuple[str, int]]:
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]
        for name in (*names, *links):
            path = f"{folder}/{name}"
            with contextlib.suppress(FileNotFoundError):  # a run removes its temporary files
                yield path[len(root) + 1 :], os.lstat(path).st_size


def reason_to_keep(run: Run, receipt: Receipt, files: Sizes) -> str:
    """Return why no file of the partition may be removed; an empty string if files may be removed.

    `receipt` is the partition's newest receipt, None if there is none. `files` are the files of `run.ledger`, with
    their bytes.
    """
    if "publishing.json" in files and not run.limit_rows:
        return "publishing was interrupted; the next run completes it or rolls it back"
    return f"published by another job, {receipt['job']!r}" if receipt and receipt["job"] != run.job else ""


def removable(run: Run, receipt: Receipt, files: Sizes, keep_receipts: int, idle_since: str) -> list[GarbageItem]:
    """Return the items of the ledger to remove, in the order of removal.

    Args:
        receipt: The partition's newest receipt; None if there is none.
        files: The files of `run.ledger`, with their bytes.
        keep_receipts: The number of the newest receipts that stay, at least 1. An older one also stays while the target
            has a file that it lists, because only the receipt proves that the file belongs to this job.
        idle_since: A time in the format of attempt names. A generation that could be resumed is removed if its last
            attempt began before it. If it is empty, such a generation stays.
    """
    current = receipt["generation"] if receipt else ""
    found = [
        *_generations(run, files, current, idle_since),  # before receipts, which record that they were published
        *_receipts(run, files, current, keep_receipts),
        *_leases(run, files),
    ]
    gone = tuple(f"{item.what}/" for item in found)
    half_written = [path for path in files if path.endswith(".tmp") and not path.startswith(("lease/", *gone))]
    if half_written:
        found.append(_some(run, "*.tmp", "half-written by a process that died", half_written, files))
    return found


def removable_sample(run: Run, files: Sizes) -> list[GarbageItem]:
    """Return one item with everything that `--limit-rows` left of a partition; an empty list if it left nothing.

    The published rows are removed first, then the ledger. `files` are the files of the sample's ledger with their
    bytes, which prove that the rows belong to this job.
    """
    entries = sorted({path.split("/")[0] for path in files} - {"lease"})
    if not entries:
        return []
    published = _removed_with(run.target)
    places = (run.target, *(run.ledger / name for name in entries))
    sizes = [*published.values(), *(size for path, size in files.items() if not path.startswith("lease/"))]
    return [GarbageItem(run.partition, "samples", "made with --limit-rows", places, len(sizes), sum(sizes))]


def removable_prepared(run: Run, sink_names: list[str]) -> list[GarbageItem]:
    """Return the directories in the sink that interrupted runs of the partition prepared for a publish.

    `sink_names` are the names of all entries of the sink's directory.
    """
    found = []
    for name in sink_names:
        if name.startswith(f"_publishing-{run.partition}-"):
            sizes = _removed_with(run.sink / name)
            why = "prepared by a run that died before it published"
            found.append(GarbageItem(run.partition, name, why, (run.sink / name,), len(sizes), sum(sizes.values())))
    return found


def _generations(run: Run, files: Sizes, current: str, idle_since: str) -> Iterator[GarbageItem]:
    """Yield generations, oldest first. If a newer one went first, a run would resume an older one with its settings."""
    names = sorted({path.split("/")[1] for path in files if path.startswith("generations/")})
    resumable: set[str | None] = set()
    if set(names) - {current}:
        resumable.add(unfinished_generation(run.ledger, run.fingerprint))
        resumable.add(unfinished_retry(run.ledger, run.fingerprint, current))
    for name in names:
        home = f"generations/{name}"
        if home in files:  # a link or a file, which no run made
            continue
        attempts = {path.split("/")[3] for path in files if path.startswith(f"{home}/attempts/")}
        last = max(attempts, default=name)
        if name == current or (name in resumable and last >= idle_since):
            if attempts:
                yield _tree(run, f"{home}/attempts", "plans of attempts that ended", files)
            if name == current:
                yield from _filled(_tree(run, f"{home}/parts", "staged when it was published already", files))
                yield from _filled(_tree(run, f"{home}/duplicates", "decided for rows that are published now", files))
                yield from _filled(_tree(run, f"{home}/answers", "kept for rows that are published now", files))
            continue
        if f"{home}/generation.json" not in files:
            why = "its process died while making or removing it"
        elif f"receipts/{name}.json" in files:
            why = "published, and replaced since"
        elif name in resumable:
            why = f"could be resumed, but its last attempt began {last[:4]}-{last[4:6]}-{last[6:8]}"
        else:
            why = "no run would resume it: a newer one began, or settings changed"
        found = _tree(run, home, why, files)
        # Without its record a generation is never resumed, even if the rest remains.
        yield replace(found, places=(run.ledger / home / "generation.json", *found.places))


def _receipts(run: Run, files: Sizes, current: str, keep: int) -> Iterator[GarbageItem]:
    receipts = sorted(path for path in files if path.startswith("receipts/") and path.endswith(".json"))
    old = [path for path in receipts[:-keep] if path != f"receipts/{current}.json"]
    there = set(run.target.names()) if old else set()
    unneeded = [
        path
        for path in old
        if there.isdisjoint(name.rsplit("/", 1)[-1] for name in published_files(read_json(run.ledger / path)))
    ]
    if unneeded:
        yield _some(run, "receipts", f"older than the newest {keep}", unneeded, files)


def _leases(run: Run, files: Sizes) -> Iterator[GarbageItem]:
    """Yield leases below the newest, whose number must stay: it is the fencing token of the next run's predecessor."""
    tokens = {path: path.split("/")[1].split(".")[0] for path in files if path.startswith("lease/")}
    numbers = {path: int(token) for path, token in tokens.items() if token.isdecimal()}
    old = [path for path, number in numbers.items() if number < max(numbers.values())]
    if old:
        yield _some(run, "lease", "of runs that ended", old, files)


def _tree(run: Run, what: str, why: str, files: Sizes) -> GarbageItem:
    sizes = [size for path, size in files.items() if path.startswith(f"{what}/")]
    return GarbageItem(run.partition, what, why, (run.ledger / what,), len(sizes), sum(sizes))


def _some(run: Run, what: str, why: str, paths: list[str], files: Sizes) -> GarbageItem:
    places = tuple(run.ledger / path for path in paths)
    return GarbageItem(run.partition, what, why, places, len(paths), sum(files[path] for path in paths))


def _filled(item: GarbageItem) -> list[GarbageItem]:
    return [item] if item.files else []
