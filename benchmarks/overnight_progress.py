"""Read the progress of an Overnight run from Prefect, where the run updates it every one to five seconds."""

import contextlib
import json
import threading
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

SECONDS_BETWEEN = 1.0


def follow(api_url: str, job: str, rows: int, folder: Path, stop: threading.Event) -> None:
    """Note in `folder` the times and numbers of rows that left the models, as contenders note them themselves."""
    since, done = time.time(), 0.0
    while not stop.wait(SECONDS_BETWEEN):
        with contextlib.suppress(OSError):
            when, share = _latest(api_url, f"{job}-progress")
            if when > since and share * rows > done:
                with open(folder / "prefect", "a") as file:
                    file.write(f"{when} {share * rows - done}\n")
                done = share * rows


def _latest(api_url: str, key: str) -> tuple[float, float]:
    """Return the time of the artifact's update and its fraction of `infer`, or 0, 0 if it does not exist."""
    found = artifact(api_url, key)
    if not found:
        return 0.0, 0.0
    return datetime.fromisoformat(found["updated"]).timestamp(), float(found["metadata_"]["infer"]) / 100


def artifact(api_url: str, key: str) -> dict[str, Any] | None:
    """Return the newest artifact with this key, or None."""
    asked = json.dumps({"artifacts": {"key": {"any_": [key]}}, "limit": 1}).encode()
    request = urllib.request.Request(
        f"{api_url}/artifacts/latest/filter", asked, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return next(iter(json.load(answer)), None)
