"""Models on the Hugging Face Hub: the commit that a name has now, and the model's JSON files at a commit.

Without a network, the local cache of the hub's client is used.
"""

import os
import re
from pathlib import Path
from typing import Any

from overnight.tasks.errors import JobError

FULL_COMMIT = re.compile(r"[0-9a-f]{40}")
SECONDS = 10.0
MAIN = "main"


def commit_now(name: str, revision: str | None) -> str | None:
    """Return the commit that `revision` of the hub model `name` has now, or None if it cannot be found out.

    `revision` is a branch, a tag or a commit; None is the main branch. A full commit is returned unchanged. If the hub
    does not answer, the commit in the local cache is returned.
    """
    if revision and FULL_COMMIT.fullmatch(revision):
        return revision
    try:
        return str(_info(name, revision).sha)
    except Exception:  # it is the worker that reports a wrong name: here, another machine may have no access
        return _cached_commit(name, revision)


def find_on_hub(written: str, name: str, revision: str | None) -> tuple[Path, bool]:
    """Return the local folder with the JSON files of the hub model `name`, and True if the hub cannot be reached.

    The files are fetched if the local cache lacks them. The folder's name is the commit. `revision` is a commit, a tag
    or a branch; None is the main branch. Messages show `written`, the name in the job file. Raise `JobError` for a name
    or a revision that the hub does not have. Raise it too if neither the hub nor the local cache has the files.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    offline: Exception | None = None
    try:  # transformers tries 6 times, 23 seconds in all per file, before it reports that the hub is unreachable
        _info(name, revision)
    except RevisionNotFoundError as error:
        raise JobError(
            f"revision: expected a commit, tag or branch of the model {written} on the hub, found {revision}. "
            "Correct it.",
            "infer",
        ) from error
    except HfHubHTTPError as error:
        if error.response.status_code == 429 or error.response.status_code >= 500:
            offline = error
        else:
            answer = " ".join(str(error).replace(name, written).split())
            raise JobError(
                f"model {written}: expected a folder (relative to {os.getcwd()}) or the name of a model on the hub, "
                f"found neither. The hub answers: {answer}",
                "infer",
            ) from error
    except Exception as error:
        offline = error
    only_local = offline is not None
    try:
        found = snapshot_download(name, revision=revision, allow_patterns=["*.json"], local_files_only=only_local)
    except Exception as error:
        raise JobError(
            f"model {written}: expected a folder (relative to {os.getcwd()}) or the name of a model on the hub. There "
            f"is no such folder, its settings are not in the hub's local cache, and the hub cannot be reached: "
            f"{offline or error}. Correct the path, or fetch the model where there is a network.",
            "infer",
        ) from error
    return Path(found), only_local


def _info(name: str, revision: str | None) -> Any:
    from huggingface_hub import HfApi

    return HfApi().model_info(name, revision=revision, timeout=SECONDS)


def _cached_commit(name: str, revision: str | None) -> str | None:
    """Return the commit of a revision in the local cache of the hub's client, None without one."""
    from huggingface_hub import try_to_load_from_cache

    places = (try_to_load_from_cache(name, file, revision=revision or MAIN) for file in ("config.json", "modules.json"))
    return next((Path(place).parent.name for place in places if isinstance(place, str)), None)
