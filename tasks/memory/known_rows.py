"""The rows that a model has seen: a run takes their results from files, and calls the model for the others alone.

A member of a file has the results of one call: the columns that the model added, without a prefix, and the row keys.
"""

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import OvernightError
from overnight.tasks.memory.keys import KEY_BYTES, row_keys
from overnight.tasks.memory.made_rows import KEY, ROWS, Made, packed
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.reuse.kept_files import DAMAGE, KeptFiles
from overnight.tasks.rows.plain_values import arrow_column
from overnight.tasks.rows.result import Outcome, concatenated
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
        return keys is not None and len(self._find(keys)[0]) == len(keys)

    def completed(self, rows: pa.Table, call: Callable[[np.ndarray], Outcome]) -> tuple[Outcome, Made | None]:
        """Return the results for rows with the columns that the model reads, and what to remember.

        `call` runs the model on the rows of these numbers.
        """
        keys = row_keys(rows)
        if keys is None:
            return call(np.arange(len(rows))), None
        numbers, table = self._find(keys)
        misses = np.setdiff1d(np.arange(len(rows)), numbers)
        outcome = Outcome()
        if len(misses):
            outcome = call(misses)
        columns = {}
        for name, values in outcome.columns.items():
            columns[name.removeprefix(self._prefix)] = arrow_column(name, values)
        whole = np.setdiff1d(np.arange(len(misses)), list(outcome.failed))
        own_keys = pa.array([keys[row] for row in misses[whole]], pa.binary(KEY_BYTES))
        new = pa.table(columns)
        new_rows = packed(new.take(whole).append_column(KEY, own_keys) if columns else None, len(numbers))
        if not len(numbers):
            return outcome, new_rows
        errors = {int(misses[row]): error for row, error in outcome.failed.items()}
        return Outcome(self._joined(table, numbers, new, misses), failed=errors), new_rows

    def _joined(self, table: pa.Table, numbers: np.ndarray, new: pa.Table, misses: np.ndarray) -> dict[str, Any]:
        """Return the columns of all rows: `numbers` are those of `table`, and `misses` are those of `new`."""
        places = np.full(len(numbers) + len(misses), -1)
        places[numbers] = np.arange(len(numbers))
        if new.num_columns:
            places[misses] = len(numbers) + np.arange(len(misses))
            table = concatenated([table, new], "infer")
        table = table.take(pa.array(places, mask=places < 0))
        return {self._prefix + name: table[name] for name in table.column_names}

    def _find(self, keys: list[bytes]) -> tuple[np.ndarray, pa.Table]:
        """Return the ascending numbers of the known rows, and a table with the result of each: the newest one."""
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
        rows = np.array(sorted(places), np.int64)
        return rows, _taken([places[row] for row in rows.tolist()])

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
    table = pa.ipc.open_stream(content).read_all()
    keys = table[KEY].to_pylist()
    return table.drop_columns([KEY]), {key: row for row, key in enumerate(keys)}


def _taken(places: list[tuple[pa.Table, int]]) -> pa.Table:
    """Return the rows at these places, in order."""
    numbers: dict[int, list[int]] = defaultdict(list)  # of the places in a table, by its id
    for number, (table, _) in enumerate(places):
        numbers[id(table)].append(number)
    pieces = []
    for own in numbers.values():
        pieces.append(places[own[0]][0].take([places[number][1] for number in own]))
    if not pieces:
        return pa.table({})
    return concatenated(pieces, "infer").take(np.argsort(np.concatenate(list(numbers.values()))))
