"""A classifier's outputs as columns: the likeliest class of each row, or several of them.

The confidences are what transformers' pipelines return by the head that the model's config states:

    regression (problem_type)                    the outputs themselves
    multi_label_classification, or one output    a sigmoid of each output
    otherwise                                    a softmax over all outputs

Out: `predicted_label` (string, from the model's id2label) and `confidence` (float32), one value per row. With `top_k`
of more than one also `top_labels` (list of strings) and `top_confidences` (list of float32), the likeliest first.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from pydantic import Field, PositiveInt

if TYPE_CHECKING:
    import torch

TopK = Annotated[
    PositiveInt, Field(description="The number of likeliest classes; more than one adds columns of lists.")
]


def confidences(logits: "torch.Tensor", config: Any) -> "torch.Tensor":
    """Return the confidence of each class, float32 N x C, from `logits` of this shape, by the model's `config`."""
    if config.problem_type == "regression":
        return logits
    is_each_its_own = config.problem_type == "multi_label_classification" or config.num_labels == 1
    return logits.sigmoid() if is_each_its_own else logits.softmax(-1)


def columns_of(top_k: int) -> list[str]:
    """Return the names of a classifier's columns: label and confidence, and with `top_k` above 1 also lists of both."""
    return ["predicted_label", "confidence", *(["top_labels", "top_confidences"] if top_k > 1 else [])]


def labelled(scores: "torch.Tensor", labels: Mapping[int, str], top_k: int) -> dict[str, Any]:
    """Return the columns with each row's likeliest class and its confidence, from float32 N x C `scores`.

    `labels` has the name of each class by its number. Equally likely classes keep their order. With `top_k` above 1,
    two more columns have lists of the `top_k` likeliest classes and of their confidences.
    """
    confidence, index = scores.sort(dim=-1, descending=True, stable=True)
    columns: dict[str, Any] = {
        "predicted_label": [labels[number] for number in index[:, 0].tolist()],
        "confidence": confidence[:, 0].numpy(),
    }
    if top_k > 1:
        names = [[labels[number] for number in row] for row in index[:, :top_k].tolist()]
        columns["top_labels"] = pa.array(names, pa.list_(pa.string()))
        columns["top_confidences"] = pa.array(confidence[:, :top_k].tolist(), pa.list_(pa.float32()))
    return columns
