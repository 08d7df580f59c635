"""The place of a model: a hub name, a folder, or a folder inside an installed package; and its fingerprint.

A job file names a model as a hub name (`google/vit-base-patch16-224`), as a folder (`./models/digits`, relative to the
working directory), or as `package:NAME/FOLDER`, a folder inside an installed Python package. `${NAME}` is an
environment variable. A name without `./` is a folder if such a folder exists, otherwise a hub name. Hub models use the
newest revision of the main branch; without a network, the one in the local cache. This file loads no model.
"""

import hashlib
import os
import re
from pathlib import Path

from overnight.tasks.config.package_data import PREFIX, folder_in_package
from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.storage.location import expand

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")

IMPORTS = (
    "torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.tokenization_auto",
)


def find(model: str) -> Checkpoint:
    """Return the model that `model` names.

    Raise JobError for a path without a model folder, or a name unknown to the hub.
    """
    folder = _folder(model)
    return _on_hub(model, _expanded(model)) if folder is None else Checkpoint(model, str(folder), folder)


def fingerprint(model: str) -> dict[str, str]:
    """Return file name -> sha256 for every file of a folder; for a hub name, `{"hub": name}`.

    Names that begin with a dot are skipped.
    """
    folder = _folder(model)
    if folder is None:
        return {"hub": _expanded(model)}
    hashes = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts):
            with path.open("rb") as file:
                hashes[name.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def _on_hub(model: str, name: str) -> Checkpoint:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    offline = None
    try:  # transformers tries 6 times, 23 seconds in all per file, before it reports that the hub is unreachable
        HfApi().model_info(name, timeout=10)
    except HfHubHTTPError as error:
        answer = " ".join(str(error).replace(name, model).split())
        raise JobError(
            f"model {model}: expected a folder (relative to {os.getcwd()}) or the name of a model on the hub, found "
            f"neither. The hub answers: {answer}",
            "infer",
        ) from error
    except Exception as error:
        offline = error
    try:
        snapshot = snapshot_download(name, allow_patterns=["*.json"], local_files_only=offline is not None)
    except Exception as error:
        raise JobError(
            f"model {model}: expected a folder (relative to {os.getcwd()}) or the name of a model on the hub. There is "
            f"no such folder, its settings are not in the hub's local cache, and the hub cannot be reached: "
            f"{offline or error}. Correct the path, or fetch the model where there is a network.",
            "infer",
        ) from error
    return Checkpoint(model, name, Path(snapshot), revision=Path(snapshot).name, local_files_only=offline is not None)


def _folder(model: str) -> Path | None:
    """Return the model's folder; None for a hub name."""
    name = _expanded(model)
    if name.startswith(PREFIX):
        folder = folder_in_package(name, f"model {model}", "infer")
    else:
        folder = Path(name).expanduser()
        if HUB_NAME.fullmatch(name) and not folder.exists():
            return None
    if not folder.is_dir():
        found = "a single file" if folder.exists() else "nothing there"
        raise _not_a_model(model, found + ("" if folder.is_absolute() else f", looking from {os.getcwd()}"))
    if not any((folder / file).is_file() for file in ("config.json", "modules.json")):
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:5])
        raise _not_a_model(model, f"a folder that begins with {names}" if names else "an empty folder")
    return folder


def _expanded(model: str) -> str:
    try:
        return expand(model)
    except JobError as error:
        raise JobError(error.message, "infer") from error


def _not_a_model(model: str, found: str) -> JobError:
    return JobError(
        f"model {model}: expected a folder with config.json and weights, as save_pretrained writes it, found {found}. "
        "Correct the path; for a model in another format use kind: python.",
        "infer",
    )
