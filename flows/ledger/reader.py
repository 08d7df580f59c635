"""What there is of many partitions, told from a listing and a small file or two each, many at a time.

It knows what the files are and nothing of what they mean for a partition: that is `partition_status.py`.
"""

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from overnight.tasks.state import lease
from overnight.tasks.state.run import parse_json
from overnight.tasks.storage.location import Location

AT_ONCE = 16
FEW = 100  # partitions, up to which each is listed by itself; more are listed together, a thousand files a request
READ = ("receipt.json", "failure.json", "publishing.json")


@dataclass(frozen=True)
class PartitionLedger:
    """A partition's ledger: its small files, and what is to be known of the rest."""

    receipt: dict[str, Any] | None
    failure: dict[str, Any] | None
    holder: lease.Holder | None  # who took it and did not give it back; not the publisher, whose work is done
    is_publishing: bool  # a publish has begun to commit, and is under way or was cut off
    newest_generation: str  # an empty string if none was ever begun
    unpublished: dict[str, Any] | None  # the record of the newest generation that has one, if it was not published


def read_files(state: Location, directories: Collection[str]) -> dict[str, PartitionLedger]:
    """What there is of the ledgers of these names below `state`; those of which there is nothing are left out.

    A file that goes while it is read counts as not there. Raises `LedgerCorrupt` and `ServiceUnavailable`.
    """
    ledgers = _listed(state, directories)
    wanted = [f"{name}/{file}" for name, files in ledgers.items() for file in {*READ, _unpublished(files)} & files]
    records = {path: parse_json(content, state / path) for path, content in state.read_each(wanted).items()}
    leases = {name: _newest_lease(files) for name, files in ledgers.items()}

    def is_clear(name: str) -> bool:
        """Whether the newest lease is that of the publish: whoever had it is done, even if it was not given back."""
        token = records.get(f"{name}/receipt.json", {}).get("token")
        return token == _token(leases[name]) and f"{name}/publishing.json" not in records

    held = state.read_each([f"{name}/{newest}" for name, newest in leases.items() if newest and not is_clear(name)])
    return {
        name: PartitionLedger(
            receipt=records.get(f"{name}/receipt.json"),
            failure=records.get(f"{name}/failure.json"),
            holder=_holder(leases[name], held.get(f"{name}/{leases[name]}"), state / name),
            is_publishing="receipt" in records.get(f"{name}/publishing.json", {}),
            newest_generation=max((_generation(file) for file in files), default=""),
            unpublished=records.get(f"{name}/{_unpublished(files)}"),
        )
        for name, files in ledgers.items()
    }


def _listed(state: Location, directories: Collection[str]) -> dict[str, set[str]]:
    """The paths of all files below each of these directories that has any."""
    filesystem, root = state.open_filesystem()
    root = root.rstrip("/")
    if len(directories) > FEW:
        paths: Iterable[str] = filesystem.find(root)
    else:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            places = [f"{root}/{directory}" for directory in directories]
            paths = [path for found in pool.map(filesystem.find, places) for path in found]
    ledgers: dict[str, set[str]] = {}
    for path in paths:
        directory, _, file = path[len(root) + 1 :].partition("/")
        if directory in directories:
            ledgers.setdefault(directory, set()).add(file)
    return ledgers


def _unpublished(files: Collection[str]) -> str:
    """The record of the newest generation that has one, or an empty string if it was published, or none was begun."""
    records = [file for file in files if _generation(file) and file.endswith("/generation.json")]
    newest = max(records, default="")
    return newest if f"receipts/{_generation(newest)}.json" not in files else ""


def _generation(file: str) -> str:
    """The generation to which a file belongs, an empty string for others."""
    return file.split("/")[1] if file.startswith("generations/") else ""


def _newest_lease(files: Collection[str]) -> str:
    leases = (file for file in files if file.startswith("lease/") and file.removeprefix("lease/").isdecimal())
    return max(leases, key=_token, default="")


def _token(name: str) -> int:
    return int(name.removeprefix("lease/"))


def _holder(name: str, content: bytes | None, ledger: Location) -> lease.Holder | None:
    """The run that holds a partition, or died holding it. Cleaning is no run."""
    if content is None:
        return None
    parse_json(content, ledger / name)
    found = lease.read_holder(_token(name), content)
    return None if found and found.owner.startswith("clean-") else found
