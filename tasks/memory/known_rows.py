"""The rows that a model or a step has seen: a run takes their results from files, and calls it for the others alone.

A member of a file has the results of one call: the columns that it added, without a prefix, and the row keys.
"""

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import OvernightError
from overnight.tasks.memory.keys import KEY_BYTES, row_keys
from overnight.tasks.memory.made_rows import KEY, ROWS, Made, packed, unpacked
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.reuse.kept_files import DAMAGE, KeptFiles
from overnight.tasks.rows.plain_values import arrow_column
from overnight.tasks.rows.result import PADDING, Outcome, concatenated
from overnight.tasks.storage.location import Location

TRIAL = "trial.json"  # beside the files: what a trial of the model measured
READS_AT_ONCE = 8

Positions = dict[bytes, int]  # key -> row of a member's table

_log = logging.getLogger("overnight.memory")


class KnownRows:
    """The results of one model. `prefix` begins the names of its columns in this job."""

    def __init__(self, memory: ModelMemory, prefix: str) -> None:
        self.memory, self._prefix = memory, prefix
        folders: list[Location] = [memory.folder] if memory.is_read else []
        self._files = KeptFiles(folders, ROWS, time.time() - memory.days * 86400, _read)

    @property
    def is_empty(self) -> bool:
        return not len(self._files)

    def has_all(self, rows: pa.Table) -> bool:
        """Return True if all rows, with the columns that the model reads, are known."""
        keys = row_keys(rows)
        return keys is not None and len(self._find(keys)) == len(keys)

    def completed(self, rows: pa.Table, call: Callable[[np.ndarray], Outcome]) -> tuple[Outcome, Made | None]:
        """Return the results for rows with the columns that the model reads, and what to remember.

        `call` runs the model on the rows of these numbers.
        """
        keys = row_keys(rows)
        if keys is None:
            return call(np.arange(len(rows))), None
        places = self._find(keys)
        numbers = np.array(sorted(places), np.int64)
        misses = np.setdiff1d(np.arange(len(rows)), numbers)
        outcome = Outcome()
        if len(misses):
            outcome = call(misses)
        columns = {}
        for name, values in outcome.columns.items():
            columns[name.removeprefix(self._prefix)] = arrow_column(name, values)
        whole = np.setdiff1d(np.arange(len(misses)), list(outcome.failed))
        own_keys = pa.array([keys[row] for row in misses[whole]], pa.binary(KEY_BYTES))
        new = pa.table(columns or {PADDING: pa.nulls(len(misses))})  # it may leave all columns as they were
        new_rows = packed(new.take(whole).append_column(KEY, own_keys), len(numbers))
        if not len(numbers):
            return outcome, new_rows
        errors = {int(misses[row]): error for row, error in outcome.failed.items()}
        places |= {int(misses[row]): (new, int(row)) for row in whole}
        return Outcome(self._columns(places, rows), failed=errors), new_rows

    def _columns(self, places: dict[int, tuple[pa.Table, int]], rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the columns of all rows, whose results are at these places; other rows get null.

        A column that some results replace, and others leave as it was, has the values of `rows` for the latter.
        """
        numbers: dict[int, list[int]] = defaultdict(list)  # of the rows in a table, by its id
        for row, (table, _) in places.items():
            numbers[id(table)].append(row)
        names = dict.fromkeys(name for table, _ in places.values() for name in table.column_names)
        names.pop(PADDING, None)
        pieces = []
        for own in numbers.values():
            piece = places[own[0]][0].take([places[row][1] for row in own])
            for name in names:
                if name not in piece.column_names and self._prefix + name in rows.column_names:
                    piece = piece.append_column(name, rows[self._prefix + name].take(own))
            pieces.append(piece)
        order = np.full(len(rows), -1)
        order[np.concatenate(list(numbers.values()))] = np.arange(len(places))
        whole = concatenated(pieces, "infer").take(pa.array(order, mask=order < 0))
        return {self._prefix + name: whole[name] for name in names}

    def _find(self, keys: list[bytes]) -> dict[int, tuple[pa.Table, int]]:
        """Return for each known row the table and the number of its newest result."""
        numbers = np.frombuffer(b"".join(keys), np.uint64)[::2]
        candidates = [self._files.places(number) for number in numbers]
        places: dict[int, tuple[pa.Table, int]] = {}
        while any(candidates):
            members = {waiting[-1] for waiting in candidates if waiting}
            with ThreadPoolExecutor(READS_AT_ONCE) as pool:
                contents = dict(zip(members, pool.map(self._files.at, members), strict=True))
            for row, waiting in enumerate(candidates):
                content = contents[waiting.pop()] if waiting else None
                if content and keys[row] in content[1]:
                    places[row] = content[0], content[1][keys[row]]
                    waiting.clear()
        return places

    def measured(self) -> dict[str, float] | None:
        """Return what `keep_measures` kept; None if nothing did."""
        try:
            return dict(json.loads((self.memory.folder / TRIAL).read_bytes()))
        except (FileNotFoundError, *DAMAGE):
            return None

    def keep_measures(self, measures: dict[str, float]) -> None:
        """Keep what a trial of the model measured, for a run that knows all rows of its trial."""
        try:
            (self.memory.folder / TRIAL).write_bytes(json.dumps(measures).encode())
        except (OvernightError, OSError) as error:
            _log.warning("memory: the trial of %s is not remembered: %s", self.memory.name, error)


def _read(content: bytes) -> tuple[pa.Table, Positions]:
    table = unpacked(content)
    keys = table[KEY].to_pylist()
    return table.drop_columns([KEY]), {key: row for row, key in enumerate(keys)}
