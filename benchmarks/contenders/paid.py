"""What the contenders of `paid_twice.py` share: rows, the endpoint, and the file that names the rows with an answer.

A contender is run as `python paid_NAME.py FOLDER URL online|batch|default`; `default` leaves out the settings that let
a job go on after a row that fails.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

CONCURRENT = 16
folder, url, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
is_default = mode == "default"


def rows_of(kind: str) -> str:
    """Return the pattern of the files with the columns `id` and `text`, ten of them."""
    return str(folder / "rows" / f"*.{kind}")


def answered(pairs: Iterable[tuple[int | str, str | None]]) -> None:
    """Note the rows that have an answer, from the contender's own output."""
    rows = [int(row) for row, answer in pairs if answer]
    (folder / "answered.json").write_text(json.dumps(rows))
