"""Any pipeline of transformers, over columns: named entities, zero-shot labels, masks, depth, answers from tables.

Apart from rounding, each row gets what the pipeline returns for this row alone. Only the tasks in `BATCHED` share a
forward pass, and only for rows with the same arguments, and images or sound of one size. Padding would change their
results. Every other task runs row by row. A task that draws random numbers draws them from `seed` and `row_id`.
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.generation import seed_of
from overnight.tasks.infer.huggingface.media import require_rate
from overnight.tasks.infer.huggingface.pipeline_io import (
    WORDS,
    Input,
    columns_of,
    declared,
    groups,
    inputs_of,
    required,
)
from overnight.tasks.infer.huggingface.pipeline_loading import library_missing, load_pipeline, supported
from overnight.tasks.infer.huggingface.saved_model import PretrainedPredictor
from overnight.tasks.infer.predictor import Batch, Offer, Predict
from overnight.tasks.rows.tensors import TENSOR

SOUND = frozenset({"audio-classification", "automatic-speech-recognition", "zero-shot-audio-classification"})
PADDED = frozenset(  # tasks whose models do not see the padding of texts
    {
        *("fill-mask", "ner", "sentiment-analysis", "text-classification", "token-classification"),
        "zero-shot-classification",
    }
)
BATCHED = PADDED | {
    *("audio-classification", "depth-estimation", "image-classification", "image-segmentation", "object-detection"),
    "zero-shot-image-classification",
}
DONUT = "vision-encoder-decoder"  # models that read the words in images themselves
SETTINGS = frozenset({"batch_size", "device", "dtype", "model", "num_workers", "task"})


class TransformersPipeline(PretrainedPredictor):
    """Runs any pipeline of transformers."""

    kind: Literal["pipeline"] = "pipeline"
    offer: ClassVar[Offer] = Offer(
        "named entities of texts, and what other pipelines of transformers find",
        "text",
        "dslim/bert-base-NER",
        lambda column: {"input": column},
        architecture="bert",
    )
    task: Annotated[
        str,
        Field(
            min_length=1,
            description="The pipeline's task, as transformers names it.",
            examples=["token-classification", "zero-shot-classification", "depth-estimation"],
        ),
    ]
    input: Annotated[
        str | dict[str, str],
        Field(
            min_length=1,
            description="The column that the pipeline reads, or a column for each name in its input.",
            examples=["text", {"query": "question", "table": "rows"}],
        ),
    ]
    arguments: Annotated[
        dict[str, Any], Field(description="Arguments of the pipeline's call, for example {candidate_labels: [a, b]}.")
    ] = {}
    argument_columns: Annotated[
        dict[str, str], Field(description="Arguments whose values are in columns of the row.")
    ] = {}
    seed: Annotated[int, Field(description="The seed of the random numbers, for tasks that draw some.")] = 0

    @model_validator(mode="after")
    def _arguments_are_those_of_a_call(self) -> "TransformersPipeline":
        for name in (*self.arguments, *self.argument_columns):
            if name in SETTINGS:
                raise ValueError(f"arguments: expected arguments of the pipeline's call, found {name}, a setting")
            if name in self.arguments and name in self.argument_columns:
                raise ValueError(f"expected {name} in arguments or in argument_columns, found it in both")
        return self

    def inputs(self) -> list[str]:
        columns = [self.input] if isinstance(self.input, str) else [*self.input.values()]
        columns += self.argument_columns.values()
        if self.task in SOUND:
            columns.append("sampling_rate")
        return list(dict.fromkeys([*columns, "row_id"]))

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        if column.type == TENSOR:
            return super().given(name, column)
        values = np.empty(len(column), object)
        values[:] = column.to_pylist()
        return values

    def imports(self) -> tuple[str, ...]:
        return (*model_location.IMPORTS, "transformers.pipelines")

    def tunes_batch_size(self) -> bool:
        return self.task in BATCHED and super().tunes_batch_size()

    def load(self) -> Predict:
        info = supported(self.task)
        task = info["task"]
        checkpoint, pools = self.checkpoint(), bool(self.arguments.get("pool"))
        pipe = load_pipeline(checkpoint, info, self.dtype, self.torch_device(), pools)
        needs_words = task == "document-question-answering" and pipe.model.config.model_type != DONUT
        if needs_words and (isinstance(self.input, str) or WORDS not in self.input):
            require_extra("pytesseract", f"task: {task} without {WORDS} in input", "infer")
        types = declared(task, self.arguments)
        rate = pipe.feature_extractor.sampling_rate if task in SOUND else None
        in_groups = task in BATCHED and (task not in PADDED or _pads(pipe))

        def predict(batch: Batch) -> dict:
            if rate is not None:
                require_rate(batch["sampling_rate"], rate, f"task: {task}")
            rows = inputs_of(batch, self.input, info["type"])
            arguments = self._arguments(batch)
            try:
                if in_groups:
                    results = _in_groups(pipe, rows, arguments)
                else:
                    results = []
                    for row, values, row_id in zip(rows, arguments, batch["row_id"], strict=True):
                        results.append(_run_row(pipe, task, row, values, seed_of(f"{self.seed} {row_id}")))
            except ImportError as error:
                raise library_missing(task, error) from error
            return columns_of(results, types)

        return predict

    def _arguments(self, batch: Batch) -> list[dict[str, Any]]:
        """Return the arguments of the call for each row, with those whose values are in its columns."""
        rows = [dict(self.arguments) for _ in batch["row_id"]]
        for name, column in self.argument_columns.items():
            for row, value in zip(rows, batch[column], strict=True):
                row[name] = required(value, column)
        return rows


def _in_groups(pipe: Any, rows: list[Input], arguments: list[dict[str, Any]]) -> list[Any]:
    """Return the pipeline's result for each row, with a forward pass for each group of similar rows."""
    results: list[Any] = [None] * len(rows)
    for numbers in groups(rows, arguments):
        inputs = (rows[number] for number in numbers)
        outputs = pipe(inputs, batch_size=len(numbers), **arguments[numbers[0]])
        for number, result in zip(numbers, outputs, strict=True):
            results[number] = result
    return results


def _run_row(pipe: Any, task: str, row: Input, arguments: dict[str, Any], seed: int) -> Any:
    import torch

    torch.manual_seed(seed)
    if task == "image-text-to-text":
        return pipe(**row, **arguments)
    return pipe([*row.values()] if task == "keypoint-matching" else row, **arguments)


def _pads(pipe: Any) -> bool:
    """Return True if texts of several lengths may share a forward pass. Set the model's pad token for it."""
    pad = pipe.tokenizer.pad_token_id
    if pad is not None and pipe.model.config.pad_token_id is None:
        pipe.model.config.pad_token_id = pad  # decoders use it to find the last token of a padded text
    return pad is not None
