"""The place of a model, and its fingerprint.

A job file names a model as a hub name (`google/vit-base-patch16-224`), as a folder (`./models/digits`, relative to the
working directory), as a folder in a store (`s3://models/digits/`), or as `package:NAME/FOLDER`, a folder inside an
installed Python package. `${NAME}` is an environment variable. A name without `./` is a folder if such a folder exists,
otherwise a hub name. This file loads no model.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from overnight.tasks.config.package_data import PREFIX, folder_in_package
from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.hub import commit_now, find_on_hub
from overnight.tasks.infer.huggingface.remote_code import refuse_code_elsewhere, refuse_unpinned_code
from overnight.tasks.infer.predictor import COMMIT
from overnight.tasks.infer.stored_model import fetched, is_stored, listed_folder, local_path
from overnight.tasks.storage.location import expand

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
    """Find the model that `model` names, and return it as a `Checkpoint`. A folder in a store is fetched once per node.

    Args:
        model: A hub name, a path, the URI of a folder in a store, or `package:NAME/FOLDER`.
        revision: A commit, tag or branch of a hub model; default: its main branch.
        runs_code: Code in the model may run.
        pins: The versions that the run recorded: file name -> version, or `COMMIT` -> commit of a hub model. Without
            them, the present versions are used.

    Raises:
        JobError: There is no such model, `revision` is set for a folder, or `runs_code` would run code that can change.
        AccessDenied: The store or the disk refuses.
        ServiceUnavailable: The store does not answer.
    """
    if hub_name(model):
        refuse_unpinned_code(runs_code, revision)
        name = _expanded(model)
        snapshot, is_offline = find_on_hub(model, name, (pins or {}).get(COMMIT, revision))
        found = Checkpoint(model, name, snapshot, snapshot.name, is_offline, runs_code)
    else:
        _refuse_revision(model, revision)
        folder = fetched(model, pins or fingerprint(model), f"model {model}") if is_stored(model) else _folder(model)
        found = Checkpoint(model, str(folder), folder, runs_code=runs_code)
    if runs_code:
        refuse_code_elsewhere(found)
    return found


def fingerprint(model: str, revision: str | None = None, runs_code: bool = False) -> dict[str, str]:
    """Return file name -> sha256 for every file of a local folder, or `{"hub": name}` for a hub model.

    For a folder in a store, return file name -> size and version. Names that begin with a dot are skipped. Raise
    `JobError` if there is no model, or `revision` is set for a folder. Raise it too if `runs_code` is True for a hub
    model whose `revision` is not a full commit.
    """
    if hub_name(model):
        refuse_unpinned_code(runs_code, revision)
        return {"hub": _expanded(model)}
    _refuse_revision(model, revision)
    if is_stored(model):
        versions = listed_folder(model, f"model {model}", EXPECTED)
        _require_settings(model, versions)
        return versions
    folder = _folder(model)
    hashes = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts):
            with path.open("rb") as file:
                hashes[name.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def hub_name(model: str) -> bool:
    """Return True if `model` is a hub name, and no folder has this name."""
    name = _expanded(model)
    return bool(HUB_NAME.fullmatch(name)) and not Path(name).exists()


def hub_commit(model: str, revision: str | None) -> str | None:
    """Return the commit that `revision` of a hub model has now, or None if it cannot be found out.

    `revision` is a branch, a tag or a commit; None is the main branch.
    """
    return commit_now(_expanded(model), revision)


def _folder(model: str) -> Path:
    """Return the folder of a model that is not on the hub or in a store."""
    name = _expanded(model)
    is_packaged = name.startswith(PREFIX)
    folder = folder_in_package(name, f"model {model}", "infer") if is_packaged else local_path(name)
    if not folder.is_dir():
        found = "a single file" if folder.exists() else "nothing there"
        raise _not_a_model(model, found + ("" if folder.is_absolute() else f", looking from {os.getcwd()}"))
    _require_settings(model, [path.name for path in folder.iterdir()])
    return folder


def _require_settings(model: str, names: Collection[str]) -> None:
    if not any(file in names for file in SETTINGS):
        first = ", ".join(sorted(names)[:5])
        raise _not_a_model(model, f"a folder that begins with {first}" if first else "an empty folder")


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


def _not_a_model(model: str, found: str) -> JobError:
    return JobError(
        f"model {model}: expected {EXPECTED}, found {found}. "
        "Correct the path; for a model in another format use kind: python.",
        "infer",
    )
