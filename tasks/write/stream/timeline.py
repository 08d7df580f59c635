"""Keep the timeline of a stream in a file of its attempt, so that a run that fails or is cancelled has one too."""

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from overnight.tasks.engine.stream import Streamed
from overnight.tasks.state.run import Run, write_json

SECONDS_BETWEEN, SECONDS_AT_THE_END = 10.0, 5.0


@dataclass
class Timeline:
    """Writes the file of a run's attempt every ten seconds, from a thread: a storage that is away delays nothing."""

    run: Run
    due: float = 0.0  # in seconds of the stream
    writing: threading.Thread | None = None

    def keep(self, streamed: Streamed, rows: Mapping[str, int], seconds: float) -> None:
        """Begin to write the file if it is due. `rows` has the rows that each stage has done."""
        if seconds < self.due or (self.writing and self.writing.is_alive()):
            return
        self.due = seconds + SECONDS_BETWEEN
        stages = {}
        for stage, count in rows.items():
            started_at, finished_at = streamed.times.get(stage, (None, None))
            stages[stage] = {"rows": count, "started_at": started_at, "finished_at": finished_at}
        content = {"started_at": self.run.started_at, "stages": stages, "samples": streamed.samples}
        self.writing = threading.Thread(target=self._write, args=(content,), name="timeline", daemon=True)
        self.writing.start()

    def finish(self, streamed: Streamed, rows: Mapping[str, int]) -> None:
        """Write the file for the last time, and wait a few seconds for the storage."""
        self._wait()
        self.keep(streamed, rows, self.due)
        self._wait()

    def _wait(self) -> None:
        if self.writing:
            self.writing.join(SECONDS_AT_THE_END)

    def _write(self, content: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # it only informs
            write_json(self.run.timeline, content)
