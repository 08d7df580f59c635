"""Where a model is, and its fingerprint. This file loads no model.

A job file names a model as a hub name (`google/vit-base-patch16-224`), as a folder (`./models/digits`, relative to the
working directory), as a folder in a store (`s3://models/digits/`), or as `package:NAME/FOLDER`, a folder inside an
installed Python package. A name without `./` is a folder if such a folder exists, otherwise a hub name. Without a
network, the local cache of the hub's client is used.
"""

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from overnight.tasks.config.package_data import PREFIX, folder_in_package
from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.model_files import fetched, is_stored, listed_folder, local_path
from overnight.tasks.infer.predictor import COMMIT
from overnight.tasks.storage.argument_files import hash_of
from overnight.tasks.storage.location import expand

FULL_COMMIT = re.compile(r"[0-9a-f]{40}")
SECONDS = 10.0  # for an answer of the hub
MAIN = "main"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
SETTINGS = ("config.json", "modules.json")
EXPECTED = "a folder with config.json and weights, as save_pretrained writes it"

IMPORTS = (
    "torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.tokenization_auto",
)


def find(
    model: str, revision: str | None = None, runs_code: bool = False, pins: Mapping[str, str] | None = None
) -> Checkpoint:
    """Return the model that `model` names, in the versions of `pins`. A folder in a store is fetched once per node."""
    if hub_name(model):
        _refuse_unpinned_code(runs_code, revision)
        name = _expanded(model)
        snapshot, is_offline = _find_on_hub(model, name, (pins or {}).get(COMMIT, revision))
        checkpoint = Checkpoint(model, name, snapshot, snapshot.name, is_offline, runs_code)
    else:
        _refuse_revision(model, revision)
        folder = _folder(model, pins)
        checkpoint = Checkpoint(model, str(folder), folder, runs_code=runs_code)
    if runs_code:
        checkpoint.refuse_code_elsewhere()
    return checkpoint


def fingerprint(model: str, revision: str | None = None, runs_code: bool = False) -> dict[str, str]:
    """Return file name -> sha256 of a local folder, -> size and version in a store, or `{"hub": name}`."""
    if hub_name(model):
        _refuse_unpinned_code(runs_code, revision)
        return {"hub": _expanded(model)}
    _refuse_revision(model, revision)
    if is_stored(model):
        versions = listed_folder(model, f"model {model}", EXPECTED)
        _require_settings(model, versions)
        return versions
    return hashes_of(_folder(model, None))


def hashes_of(folder: Path) -> dict[str, str]:
    """Return file name -> sha256 of the files of a folder, without hidden ones."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = "__pycache__" in name.parts or any(part.startswith(".") for part in name.parts)
        if path.is_file() and not is_hidden:
            hashes[name.as_posix()] = hash_of(path)
    return hashes


def hub_name(model: str) -> bool:
    """Return True if `model` is a hub name, and no folder has this name."""
    name = _expanded(model)
    return bool(HUB_NAME.fullmatch(name)) and not Path(name).exists()


def hub_commit(model: str, revision: str | None) -> str | None:
    """Return the commit that `revision`, or the main branch, has now, or in the local cache if the hub is silent."""
    name = _expanded(model)
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


def _folder(model: str, pins: Mapping[str, str] | None) -> Path:
    """Return the folder of a model that is not on the hub."""
    if is_stored(model):
        return fetched(model, pins or fingerprint(model), f"model {model}")
    name = _expanded(model)
    folder = local_path(name)
    if name.startswith(PREFIX):
        folder = folder_in_package(name, f"model {model}", "infer")
    if not folder.is_dir():
        content = "a single file" if folder.exists() else "nothing there"
        if not folder.is_absolute():
            content += f", looking from {os.getcwd()}"
        raise _not_a_model(model, content)
    _require_settings(model, [path.name for path in folder.iterdir()])
    return folder


def _require_settings(model: str, names: Collection[str]) -> None:
    if not set(SETTINGS).intersection(names):
        start = ", ".join(sorted(names)[:5])
        raise _not_a_model(model, f"a folder that begins with {start}" if names else "an empty folder")


def _refuse_revision(model: str, revision: str | None) -> None:
    if revision is not None:
        raise JobError(
            f"revision: expected none, because model {model} is a folder and not a hub name, found {revision}. Leave "
            "it out: the content of the folder is recorded.",
            "infer",
        )


def _expanded(model: str) -> str:
    try:
        return expand(model)
    except JobError as error:
        raise JobError(error.message, "infer") from error


def _not_a_model(model: str, content: str) -> JobError:
    return JobError(
        f"model {model}: expected {EXPECTED}, found {content}. "
        "Correct the path; for a model in another format use kind: python.",
        "infer",
    )


def _refuse_unpinned_code(runs_code: bool, revision: str | None) -> None:
    """Raise `JobError` if code of a hub model may run, and `revision` is not a full commit, which fixes it."""
    if runs_code and not (revision and FULL_COMMIT.fullmatch(revision)):
        raise JobError(
            "trust_remote_code: expected revision to be a full commit of the hub, of 40 hexadecimal digits, found "
            f"{revision or 'no revision'}. The code of a branch or tag can change: read the code of one commit, and "
            "set that as revision.",
            "infer",
        )


def _find_on_hub(written: str, name: str, revision: str | None) -> tuple[Path, bool]:
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
