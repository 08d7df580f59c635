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

    `rows` is the number of counted rows. In the record, `rows_about` estimates the lost rows of the `bytes` unread.
    """
    suspects = errors.filter(pc.equal(errors["stage"], "ingest"))
    is_a_row_a_file = not counts["rows"].null_count and pc.all(pc.equal(counts["rows"], 1)).as_py()
    if is_a_row_a_file or not len(suspects):
        return None
    units, _ = read_manifest(manifest, ["path", "size"])
    files = units.group_by("path").aggregate([("size", "sum")])
    sizes = dict(zip(files["path"].to_pylist(), files["size_sum"].to_pylist(), strict=True))
    read_rows = _read_rows(suspects, sizes)
    if not read_rows:
        return None
    lost_bytes = sum(sizes[path] for path in read_rows)
    good_bytes = sum(sizes.values()) - lost_bytes
    good_rows = max(rows - len(read_rows) - sum(read_rows.values()), 0)
    rows_a_byte = good_rows / good_bytes if good_bytes else 0.0
    return {
        "files": len(read_rows),
        "of_files": len(sizes),
        "bytes": lost_bytes,
        "rows_counted": len(read_rows),
        "rows_about": sum(max(round(sizes[path] * rows_a_byte) - count, 1) for path, count in read_rows.items()),
    }


def told(lost: dict[str, Any]) -> str:
    """Return the record `lost`, from `unreadable`, as a text, such as `about 1,000 rows in 1 unreadable file`."""
    rows, files = lost["rows_about"], lost["files"]
    return f"about {rows:,} row{'s' * (rows != 1)} in {files:,} unreadable file{'s' * (files != 1)}"


def _read_rows(suspects: pa.Table, sizes: dict[str, int]) -> dict[str, int]:
    """Return how many rows were read before the loss, for each file that is lost from some row on."""
    rows = {}
    for row_id, message in zip(suspects["row_id"].to_pylist(), suspects["error_message"].to_pylist(), strict=True):
        if row_id in sizes:
            rows[row_id] = 0
        elif message.startswith(BROKEN_OFF) and (match := re.fullmatch(r"(.*)#([0-9]+)", row_id)) and match[1] in sizes:
            rows.setdefault(match[1], int(match[2]))
    return rows
