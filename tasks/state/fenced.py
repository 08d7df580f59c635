"""Changes of a partition's ledger that only the holder of its lease can make, even if it was frozen meanwhile.

A run puts the new file into its own folder `drafts/<token>`, checks its lease, and moves the file to its place. A run
that takes over removes the folders of earlier runs first (`lease.py`). So a move after a check that is no longer true
finds no file, or no folder, and fails.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from overnight.tasks.state import lease
from overnight.tasks.state.run import Run, json_bytes
from overnight.tasks.storage.filesystems import is_local


def write_json(run: Run, name: str, content: dict[str, Any]) -> None:
    write(run, name, json_bytes(content))


def write(run: Run, name: str, content: bytes) -> None:
    """Write a file of the run's ledger. Raise `LeaseLost` if a later run has taken over."""
    draft = lease.drafts(run.ledger, run.token) / name
    draft.write_bytes(content)
    filesystem, path = (run.ledger / name).open_filesystem()
    if is_local(filesystem):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with _checked(run):
        draft.move_to(run.ledger / name)


def remove(run: Run, name: str) -> None:
    """Remove a file directly in the run's ledger, if it exists, and the run's drafts. Raise `LeaseLost` likewise.

    On an object store, a request that a frozen run had sent after its check may still remove the file of a later run.
    """
    folder, file = lease.drafts(run.ledger, run.token), run.ledger / name
    if not is_local(file.open_filesystem()[0]):
        with _checked(run):
            file.remove()
        return
    (folder / "removed").write_bytes(b"")
    with _checked(run):
        if file.exists():
            file.move_to(folder / "removed")
    folder.remove()


@contextlib.contextmanager
def _checked(run: Run) -> Iterator[None]:
    lease.check(run.ledger, run.token)
    try:
        yield
    except FileNotFoundError:
        lease.check(run.ledger, run.token)
        raise
