"""Where a model is, and its fingerprint. This file loads no model.

A job file names a model as a hub name (`google/vit-base-patch16-224`), as a folder (`./models/digits`, relative to the
working directory), as a folder in a store (`s3://models/digits/`), or as `package:NAME/FOLDER`, a folder inside an
installed Python package. A name without `./` is a folder if such a folder exists, otherwise a hub name.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from overnight.tasks.config.package_data import PREFIX, folder_in_package
from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.hub import FULL_COMMIT, commit_now, find_on_hub
from overnight.tasks.infer.model_files import fetched, is_stored, listed_folder, local_path
from overnight.tasks.infer.predictor import COMMIT
from overnight.tasks.storage.location import expand

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
SETTINGS = ("config.json", "modules.json")
EXPECTED = "a folder with config.json and weights, as save_pretrained writes it"
ADAPTER = "adapter_config.json"  # names the repository of the model that it adapts
ELSEWHERE = "--"  # transformers' separator of a repository and a class: owner/name--module.Class

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
        snapshot, is_offline = find_on_hub(model, name, (pins or {}).get(COMMIT, revision))
        checkpoint = Checkpoint(model, name, snapshot, snapshot.name, is_offline, runs_code)
    else:
        _refuse_revision(model, revision)
        folder = _folder(model, pins)
        checkpoint = Checkpoint(model, str(folder), folder, runs_code=runs_code)
    if runs_code:
        _refuse_code_elsewhere(checkpoint)
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
    folder = _folder(model, None)
    hashes = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
        if path.is_file() and not is_hidden:
            with path.open("rb") as file:
                hashes[name.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def hub_name(model: str) -> bool:
    """Return True if `model` is a hub name, and no folder has this name."""
    name = _expanded(model)
    return bool(HUB_NAME.fullmatch(name)) and not Path(name).exists()


def hub_commit(model: str, revision: str | None) -> str | None:
    """Return the commit that `revision`, or the main branch, of a hub model has now, or None if it is unknown."""
    return commit_now(_expanded(model), revision)


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


def _refuse_code_elsewhere(checkpoint: Checkpoint) -> None:
    """Raise `JobError` if a model's settings name code in another repository, whose commit is not fixed."""
    if (checkpoint.folder / ADAPTER).is_file():
        raise checkpoint.unusable(
            f"trust_remote_code: expected a whole model, found an adapter ({ADAPTER}), whose model is in another "
            "repository in any version. Merge both and save the result"
        )
    repository = checkpoint.location if checkpoint.revision else None
    for path in sorted(checkpoint.folder.rglob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # its reader reports it
        for reference in _classes_in(content):
            owner, separator, _ = reference.partition(ELSEWHERE)
            if separator and owner != repository:
                raise checkpoint.unusable(
                    f"trust_remote_code: expected its code beside its weights, found {reference} in {path.name}, which "
                    f"is in the repository {owner} in any version. Copy the code into the model's folder"
                )


def _classes_in(content: Any) -> Iterator[str]:
    """Yield the classes that a JSON file names: in `auto_map` at any depth, and as the type of a module."""
    if isinstance(content, list):
        for value in content:
            yield from _classes_in(value)
            if isinstance(value, dict) and isinstance(value.get("type"), str):
                yield value["type"]
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from _texts_in(value) if name == "auto_map" else _classes_in(value)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item)
