"""The checks of code in a model, which `trust_remote_code` runs: only code that cannot change may run.

A full commit fixes the code of a hub model. The content of a folder fixes its code, because it is in the fingerprint.
Neither fixes code in another repository, to which a model's settings may point.
"""

import json
from collections.abc import Iterator
from typing import Any

from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.hub import FULL_COMMIT

ADAPTER = "adapter_config.json"  # names the repository of the model that it adapts
ELSEWHERE = "--"  # transformers' separator of a repository and a class: owner/name--module.Class


def refuse_unpinned_code(runs_code: bool, revision: str | None) -> None:
    """Raise JobError if code of a hub model may run, and `revision` is not a full commit."""
    if runs_code and not (revision and FULL_COMMIT.fullmatch(revision)):
        raise JobError(
            "trust_remote_code: expected revision to be a full commit of the hub, of 40 hexadecimal digits, found "
            f"{revision or 'no revision'}. The code of a branch or tag can change: read the code of one commit, and "
            "set that as revision.",
            "infer",
        )


def refuse_code_elsewhere(checkpoint: Checkpoint) -> None:
    """Raise `JobError` if the JSON files of a model name code in another repository, whose commit is not fixed.

    Raise it too for an adapter, because its whole model is in another repository.
    """
    if (checkpoint.folder / ADAPTER).is_file():
        raise checkpoint.unusable(
            f"trust_remote_code: expected a whole model, found an adapter ({ADAPTER}), whose model is in another "
            "repository in any version. Merge both and save the result"
        )
    own = checkpoint.location if checkpoint.revision else None
    for path in sorted(checkpoint.folder.rglob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # its reader reports it
        for reference in _classes_in(content):
            owner, separator, _ = reference.partition(ELSEWHERE)
            if separator and owner != own:
                raise checkpoint.unusable(
                    f"trust_remote_code: expected its code beside its weights, found {reference} in {path.name}, which "
                    f"is in the repository {owner} in any version. Copy the code into the model's folder"
                )


def _classes_in(content: Any) -> Iterator[str]:
    """Yield the classes that a JSON file names: in `auto_map` at any depth, and as the type of a module."""
    if isinstance(content, list):
        for one in content:
            yield from _classes_in(one)
            if isinstance(one, dict) and isinstance(one.get("type"), str):
                yield one["type"]
    elif isinstance(content, dict):
        for name, value in content.items():
            if name == "auto_map":
                yield from _texts_in(value)
            else:
                yield from _classes_in(value)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(one)
