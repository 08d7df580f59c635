"""Read the progress of an Overnight run from Prefect, where the run updates it every one to five seconds."""

import contextlib
import os
import threading
import time
from pathlib import Path

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey

from overnight.flows.runs.server_login import read_login

SECONDS_BETWEEN = 1.0


def follow(api_url: str, job: str, rows: int, folder: Path, stop: threading.Event) -> None:
    """Note in `folder` the times and numbers of rows that left the models, as contenders note them themselves."""
    since, done = time.time(), 0.0
    while not stop.wait(SECONDS_BETWEEN):
        with contextlib.suppress(httpx.TransportError):
            when, share = _latest(api_url, f"{job}-progress")
            if when > since and share * rows > done:
                with open(folder / "prefect", "a") as file:
                    file.write(f"{when} {share * rows - done}\n")
                done = share * rows


def _latest(api_url: str, key: str) -> tuple[float, float]:
    """Return the time of the artifact's update and its fraction of `infer`, or 0, 0 if it does not exist.

    The server's login is the one in PREFECT_HOME.
    """
    login = read_login(Path(os.environ["PREFECT_HOME"]))
    wanted = ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(any_=[key]))
    with SyncPrefectClient(api_url, auth_string=login) as client:
        artifacts = client.read_latest_artifacts(artifact_filter=wanted, limit=1)
    for progress in artifacts:
        return progress.updated.timestamp(), float(progress.metadata_["infer"] or 0) / 100
    return 0.0, 0.0
