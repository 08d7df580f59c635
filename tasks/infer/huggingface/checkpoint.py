"""A saved transformers model, found but not yet loaded, and the loading of its parts.

A missing weight is an error: transformers would fill it with random numbers.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from overnight.tasks.errors import JobError
from overnight.tasks.infer.model_files import is_bomb

ADAPTER = "adapter_config.json"  # names the repository of the model that it adapts
ELSEWHERE = "--"  # transformers' separator of a repository and a class: owner/name--module.Class

Model = Annotated[
    str,
    Field(
        min_length=1,
        description="A hub name, a folder as save_pretrained writes it (a path, or in a store, such as "
        "s3://models/clip/), or package:NAME/FOLDER.",
    ),
]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"],
    Field(description="The number type of weights and forward pass; outputs are float32 in any case."),
]


@dataclass(frozen=True)
class Checkpoint:
    """A saved model at `location`, a folder or a hub name, with its JSON files in `folder`."""

    written: str  # the name in the job file, for messages
    location: str
    folder: Path
    revision: str | None = None  # the commit of a hub model
    local_files_only: bool = False  # loading sends no request to the hub
    runs_code: bool = False  # code in the model may run

    def load(self, auto_class: Any, **settings: Any) -> Any:
        """Return `auto_class.from_pretrained` of the model. Raise `JobError` if it cannot be loaded."""
        import transformers

        for path in self.folder.rglob("*.bin"):
            if is_bomb(path):
                raise self.unusable(
                    f"expected weights whose numbers are stored, found {path.name}, which unpacks to far more"
                )
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        if self.revision:
            settings["revision"] = self.revision
        try:
            return auto_class.from_pretrained(
                self.location, local_files_only=self.local_files_only, trust_remote_code=self.runs_code, **settings
            )
        except Exception as error:
            raise self.unusable(f"{auto_class.__name__} cannot load it: {error}") from error

    def weights(self, auto_class: Any, dtype: Dtype, optional: str | None = None, **settings: Any) -> tuple[Any, bool]:
        """Load the model in evaluation mode. Return it, and False if weights of the part `optional` are missing."""
        import torch

        model, report = self.load(auto_class, dtype=getattr(torch, dtype), output_loading_info=True, **settings)
        gaps = sorted(name for name in report["missing_keys"] if not name.endswith("num_batches_tracked"))
        random_weights = [name for name in gaps if optional is None or optional not in name.split(".")]
        if random_weights:
            raise self.unusable(
                f"expected all weights of a {type(model).__name__}, found none for {', '.join(random_weights[:5])} "
                f"({len(random_weights)} missing), which would be random. Use a checkpoint that was trained for this"
            )
        return model.eval(), not gaps

    def settings_file(self, name: str) -> Any:
        """Return the content of the JSON file `name` beside the model, or None if there is no such file."""
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        except (OSError, ValueError) as error:
            raise self.unusable(f"{name} cannot be read as JSON: {error}") from error

    def refuse_code_elsewhere(self) -> None:
        """Raise `JobError` if the model's settings name code in another repository, whose commit is not fixed."""
        if (self.folder / ADAPTER).is_file():
            raise self.unusable(
                f"trust_remote_code: expected a whole model, found an adapter ({ADAPTER}), whose model is in another "
                "repository in any version. Merge both and save the result"
            )
        repository = self.location if self.revision else None
        for path in sorted(self.folder.rglob("*.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue  # its reader reports it
            for reference in _classes_in(content):
                owner, separator, _ = reference.partition(ELSEWHERE)
                if separator and owner != repository:
                    raise self.unusable(
                        f"trust_remote_code: expected its code beside its weights, found {reference} in {path.name}, "
                        f"which is in the repository {owner} in any version. Copy the code into the model's folder"
                    )

    def unusable(self, reason: str) -> JobError:
        """Return the error of this model for a `reason` without a full stop."""
        return JobError(f"model {self.written}: {reason.replace(self.location, self.written)}.", "infer")


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
