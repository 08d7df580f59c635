"""The chains of models that `overnight init` offers. Each model or step reads columns that earlier ones made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from overnight.tasks.errors import JobError
from overnight.tasks.infer.kinds import Offer

Entries = list[dict[str, Any]]


@dataclass(frozen=True)
class Chain:
    """A chain of models. `offer.model` has a usual name for each model, with commas between them.

    `made_of` takes a name for each model, and returns the chain's entries of `inference`.
    """

    offer: Offer
    made_of: Callable[..., Entries]

    def entries(self, models: str) -> Entries:
        """Return the chain's entries of `inference`. `models` has a name for each model, with commas between them.

        Raise `JobError` if the number of names is wrong.
        """
        names = [name.strip() for name in models.split(",")]
        usual = self.offer.model.split(",")
        if len(names) != len(usual) or not all(names):
            raise JobError(
                f"--model {models}: expected {len(usual)} names with commas, for example {self.offer.model}."
            )
        return self.made_of(*names)


def _labelled_objects(detector: str, classifier: str) -> Entries:
    return [
        {"kind": "object_detection", "name": "found", "model": detector},
        {"kind": "crop_boxes", "boxes": "found_boxes"},
        {"kind": "image_classification", "name": "object", "model": classifier},
    ]


CHAINS = {
    "object_classification": Chain(
        Offer(
            "a chain: objects are found in images, cropped, and labelled by a second model",
            "image",
            "hustvl/yolos-tiny,google/vit-base-patch16-224",
            whole_images=True,
            architecture="yolos,vit",
        ),
        _labelled_objects,
    ),
}
