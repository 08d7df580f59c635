"""A saved transformers model, found but not yet loaded: it loads the model's parts, and its errors have a reason.

Code in a checkpoint runs only with `runs_code`. A missing weight is an error: transformers would fill it with random
numbers. This file does not search for models, and does not use images or text.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from overnight.tasks.errors import JobError
from overnight.tasks.infer.model_files import is_bomb

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
    """A saved model at `location`, a folder or a hub name, with its JSON files in `folder`.

    Messages show `written`, the name in the job file. `revision` is the commit of a hub model, None for a folder. With
    `local_files_only`, loading sends no request to the hub. With `runs_code`, code in the model may run.
    """

    written: str
    location: str
    folder: Path
    revision: str | None = None
    local_files_only: bool = False
    runs_code: bool = False

    def load(self, auto_class: Any, **settings: Any) -> Any:
        """Return the result of `auto_class.from_pretrained` for the model. Raise `JobError` if it cannot be loaded.

        `settings` are further arguments of `from_pretrained`.
        """
        import transformers

        if bombs := [path.name for path in self.folder.rglob("*.bin") if is_bomb(path)]:
            raise self.unusable(
                f"expected weights whose numbers are stored, found {bombs[0]}, which unpacks to far more"
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
        """Load the model in evaluation mode. Return it, and True if the checkpoint has all its weights.

        `auto_class` is the class of transformers that loads the model, and `settings` are further arguments of its
        `from_pretrained`. Raise `JobError` if the model cannot be loaded, or weights are missing. Only weights of a
        part named `optional`, such as `pooler`, may be missing; then the second result is False.
        """
        import torch

        model, report = self.load(auto_class, dtype=getattr(torch, dtype), output_loading_info=True, **settings)
        missing = sorted(name for name in report["missing_keys"] if not name.endswith("num_batches_tracked"))
        needed = [name for name in missing if optional is None or optional not in name.split(".")]
        if needed:
            raise self.unusable(
                f"expected all weights of a {type(model).__name__}, found none for {', '.join(needed[:5])} "
                f"({len(needed)} missing), which would be random. Use a checkpoint that was trained for this"
            )
        return model.eval(), not missing

    def settings_file(self, name: str) -> Any:
        """Return the content of the JSON file `name` beside the model, or None if there is no such file.

        Raise `JobError` if the file is not valid JSON.
        """
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        except (OSError, ValueError) as error:
            raise self.unusable(f"{name} cannot be read as JSON: {error}") from error

    def unusable(self, reason: str) -> JobError:
        """Return a `JobError` whose message has this model's name and `reason`, which ends without a full stop."""
        return JobError(f"model {self.written}: {reason.replace(self.location, self.written)}.", "infer")
