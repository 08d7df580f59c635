"""Models on the Hugging Face Hub: the commit that a name has now, and the model's JSON files at a commit.

Without a network, the local cache of the hub's client is used.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from overnight.tasks.errors import JobError

FULL_COMMIT = re.compile(r"[0-9a-f]{40}")
SECONDS = 10.0
MAIN = "main"


def commit_now(name: str, revision: str | None) -> str | None:
    """Return the commit that `revision`, or the main branch, has now, or in the local cache if the hub is silent."""
    if revision and FULL_COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import try_to_load_from_cache

    with contextlib.suppress(Exception):  # it is the worker that reports a wrong name: another machine may have access
        return str(_info(name, revision).sha)
    for file in ("config.json", "modules.json"):
        path = try_to_load_from_cache(name, file, revision=revision or MAIN)
        if isinstance(path, str):
            return Path(path).parent.name
    return None


def find_on_hub(written: str, name: str, revision: str | None) -> tuple[Path, bool]:
    """Return the folder, named by commit, with the model's JSON files, and True if the hub cannot be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    outage = _outage(written, name, revision)
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=["*.json"], local_files_only=outage is not None
        )
    except Exception as error:
        raise JobError(
            f"model {written}: expected a folder (relative to {os.getcwd()}) or the name of a model on the hub. There "
            f"is no such folder, its settings are not in the hub's local cache, and the hub cannot be reached: "
            f"{outage or error}. Correct the path, or fetch the model where there is a network.",
            "infer",
        ) from error
    return Path(folder), outage is not None


def _outage(written: str, name: str, revision: str | None) -> Exception | None:
    """Return the reason why the hub cannot be reached, or None. Raise `JobError` if it has no such model."""
    from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError

    try:
        _info(name, revision)
    except RevisionNotFoundError as error:
        raise JobError(
            f"revision: expected a commit, tag or branch of the model {written} on the hub, found {revision}. "
            "Correct it.",
            "infer",
        ) from error
    except HfHubHTTPError as error:
        if error.response.status_code == 429 or error.response.status_code >= 500:
            return error
        answer = " ".join(str(error).replace(name, written).split())
        raise JobError(
            f"model {written}: expected a folder (relative to {os.getcwd()}) or the name of a model on the hub, "
            f"found neither. The hub answers: {answer}",
            "infer",
        ) from error
    except Exception as error:
        return error
    return None


def _info(name: str, revision: str | None) -> Any:
    from huggingface_hub import HfApi

    return HfApi().model_info(name, revision=revision, timeout=SECONDS)
