"""Files of many rows that cannot be read, in whole or in part.

Such a file is one row in the quarantine, because its rows were never counted. The number of its lost rows is estimated
from its bytes and the rows per byte of the other files. A file that is one row, such as an image, needs no estimate.
"""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import BROKEN_OFF
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.storage.location import Location


def unreadable(errors: pa.Table, counts: pa.Table, manifest: Location, rows: int) -> dict[str, Any] | None:
    """Return the receipt's record of unreadable files; None if all files were read, or if every file is one row.

    Its keys are `files`, the number of unreadable files, and `of_files`, the number of all files. `bytes` is the size
    of the unreadable files. `rows_counted` is the number of rows that they have in the quarantine, and `rows_about` the
    estimate of their lost rows.

    Args:
        errors: The quarantine, with schema `staged_parts.QUARANTINE`.
        counts: The column `rows` of the manifest: the number of rows of each unit, null if unknown before it is read.
        manifest: The place of the manifest, whose paths and sizes are read only if needed.
        rows: The number of counted source rows, including the quarantined ones.
    """
    suspects = errors.filter(pc.equal(errors["stage"], "ingest"))
    is_a_row_a_file = not counts["rows"].null_count and pc.all(pc.equal(counts["rows"], 1)).as_py()
    if is_a_row_a_file or not len(suspects):
        return None
    units, _ = read_manifest(manifest, ["path", "size"])
    sizes = units.group_by("path").aggregate([("size", "sum")])
    read_before = _read_before(suspects, set(sizes["path"].to_pylist()))
    lost = dict(zip(sizes["path"].to_pylist(), sizes["size_sum"].to_pylist(), strict=True))
    lost = {path: lost[path] for path in read_before}
    if not lost:
        return None
    good_bytes = pc.sum(sizes["size_sum"]).as_py() - sum(lost.values())
    good_rows = rows - len(lost) - sum(read_before.values())
    a_byte = good_rows / good_bytes if good_bytes > 0 and good_rows > 0 else 0.0
    about = sum(max(round(size * a_byte) - read_before[path], 1) for path, size in lost.items())
    found = {"files": len(lost), "of_files": len(sizes), "bytes": sum(lost.values())}
    return found | {"rows_counted": len(lost), "rows_about": about}


def told(lost: dict[str, Any]) -> str:
    """Return the record `lost`, from `unreadable`, as a text, such as `about 1,000 rows in 1 unreadable file`."""
    rows, files = lost["rows_about"], lost["files"]
    return f"about {rows:,} row{'s' * (rows != 1)} in {files:,} unreadable file{'s' * (files != 1)}"


def _read_before(suspects: pa.Table, paths: set[str]) -> dict[str, int]:
    """Return how many rows were read before the loss, for each file that is lost from some row on."""
    found = {}
    for row_id, message in zip(suspects["row_id"].to_pylist(), suspects["error_message"].to_pylist(), strict=True):
        if row_id in paths:
            found[row_id] = 0
        elif message.startswith(BROKEN_OFF) and (place := re.fullmatch(r"(.*)#([0-9]+)", row_id)):
            found.setdefault(place[1], int(place[2]))
    return {path: count for path, count in found.items() if path in paths}
