"""Read the ledgers of many partitions in parallel. For each, this takes a listing and one or two small files.

This file defines which files of a ledger are read. `partition_status.py` derives the status of a partition from them.
"""

import contextlib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

from overnight.tasks.errors import LedgerCorrupt
from overnight.tasks.state import lease
from overnight.tasks.state.run import parse_json
from overnight.tasks.storage.location import Location

AT_ONCE = 16
FEW = 100  # up to this number, each partition is listed by itself; more are listed together, 1,000 files per request
READ = ("receipt.json", "failure.json", "publishing.json")


@dataclass(frozen=True)
class PartitionLedger:
    """A partition's ledger: the content of its small files, and facts about the other files."""

    receipt: dict[str, Any] | None
    failure: dict[str, Any] | None
    holder: lease.Holder | None  # the run that took the lease and did not release it, unless it has published
    is_publishing: bool  # a publish has begun to commit, and is under way or was interrupted
    newest_generation: str  # an empty string if no generation ever began
    unpublished: dict[str, Any] | None  # the record of the newest generation with a record, if it is unpublished
    files: frozenset[str]  # the paths of all files


def read_files(state: Location, directories: Collection[str]) -> dict[str, PartitionLedger]:
    """Return the ledgers in these directories below `state`, by directory. Skip a directory without files."""
    ledgers = _listed(state, directories)
    paths: list[str] = []
    for name, files in ledgers.items():
        paths += [f"{name}/{file}" for file in {*READ, _unpublished(files)} & files]
    records = {path: parse_json(content, state / path) for path, content in state.read_each(paths).items()}
    leases: dict[str, str] = {}  # the newest of each ledger whose run has not published
    for name, files in ledgers.items():
        names = [file for file in files if file.startswith("lease/") and file.removeprefix("lease/").isdecimal()]
        newest = max(names, key=_token, default="")
        is_publishing = f"{name}/publishing.json" in records
        token = records.get(f"{name}/receipt.json", {}).get("token")
        if newest and (is_publishing or token != _token(newest)):
            leases[name] = newest
    contents = state.read_each([f"{name}/{newest}" for name, newest in leases.items()])
    return {
        name: PartitionLedger(
            receipt=records.get(f"{name}/receipt.json"),
            failure=records.get(f"{name}/failure.json"),
            holder=_holder(leases.get(name, ""), contents.get(f"{name}/{leases.get(name)}"), state / name),
            is_publishing="receipt" in records.get(f"{name}/publishing.json", {}),
            newest_generation=max(map(_generation, files), default=""),
            unpublished=records.get(f"{name}/{_unpublished(files)}"),
            files=frozenset(files),
        )
        for name, files in ledgers.items()
    }


def earlier_receipts(
    state: Location, column: str, job: str, newest: int, ledger: str = "", before: str = ""
) -> list[dict[str, Any]]:
    """Return receipts of a job: of its `newest` partitions, and the `newest` kept ones of the partition in `ledger`.

    Partitions count only if the names of their ledgers are less than `before`. Corrupt receipts are left out.
    """
    # only the run of its own partition must refuse a corrupt one: these inform a forecast or a page
    days = [name for name in state.names() if name.startswith(f"{column}=") and (not before or name < before)]
    paths = [f"{name}/receipt.json" for name in days[-newest:]]
    if ledger:
        paths += [f"{ledger}/receipts/{name}" for name in (state / ledger / "receipts").names()[-newest:]]
    receipts = []
    for path, content in state.read_each(paths).items():
        with contextlib.suppress(LedgerCorrupt):
            receipt = parse_json(content, state / path)
            if receipt.get("job") == job and receipt not in receipts:
                receipts.append(receipt)
    return receipts


def _listed(state: Location, directories: Collection[str]) -> dict[str, set[str]]:
    """Return the paths of all files below each of these directories, without empty directories."""
    filesystem, root = state.open_filesystem()
    root = root.rstrip("/")
    if len(directories) > FEW:
        paths: Iterable[str] = filesystem.find(root)
    else:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            paths = chain.from_iterable(pool.map(filesystem.find, [f"{root}/{name}" for name in directories]))
    ledgers: dict[str, set[str]] = {}
    for path in paths:
        directory, _, file = path[len(root) + 1 :].partition("/")
        if directory in directories:
            ledgers.setdefault(directory, set()).add(file)
    return ledgers


def _unpublished(files: Collection[str]) -> str:
    """Return the path of the newest generation's record, or an empty string if it was published or none began."""
    records = [file for file in files if _generation(file) and file.endswith("/generation.json")]
    newest = max(records, default="")
    return newest if f"receipts/{_generation(newest)}.json" not in files else ""


def _generation(file: str) -> str:
    """Return the generation of a file, or an empty string for a file outside of generations."""
    return file.split("/")[1] if file.startswith("generations/") else ""


def _token(name: str) -> int:
    return int(name.removeprefix("lease/"))


def _holder(name: str, content: bytes | None, ledger: Location) -> lease.Holder | None:
    """Return the run that holds a partition, or died while holding it. Ignore a lease of `overnight clean`."""
    if content is None:
        return None
    parse_json(content, ledger / name)
    holder = lease.read_holder(_token(name), content)
    return None if holder and holder.owner.startswith("clean-") else holder
