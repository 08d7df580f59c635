"""How far an Overnight run is, from the progress that it shows in Prefect every one to five seconds."""

import contextlib
import json
import threading
import time
import urllib.request
from datetime import datetime
from pathlib import Path

SECONDS_BETWEEN = 1.0


def follow(api_url: str, job: str, rows: int, folder: Path, stop: threading.Event) -> None:
    """Notes in `folder` when how many rows more had left the models, as contenders note it themselves."""
    since, done = time.time(), 0.0
    while not stop.wait(SECONDS_BETWEEN):
        with contextlib.suppress(OSError):
            when, share = _latest(api_url, f"{job}-progress-infer")
            if when > since and share * rows > done:
                with open(folder / "prefect", "a") as file:
                    file.write(f"{when} {share * rows - done}\n")
                done = share * rows


def _latest(api_url: str, key: str) -> tuple[float, float]:
    """When the artifact was updated, and the fraction that it shows; 0, 0 where there is none."""
    asked = json.dumps({"artifacts": {"key": {"any_": [key]}}, "limit": 1}).encode()
    request = urllib.request.Request(
        f"{api_url}/artifacts/latest/filter", asked, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        found = json.load(answer)
    if not found:
        return 0.0, 0.0
    return datetime.fromisoformat(found[0]["updated"]).timestamp(), float(found[0]["data"]) / 100
