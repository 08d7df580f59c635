"""Any pipeline of transformers, over columns: named entities, zero-shot labels, masks, depth, answers from tables.

In: `input`, as in pipeline_inputs.py. Out: as in pipeline_results.py.

Apart from rounding, each row gets what the pipeline returns for this row alone. Only the tasks in `BATCHED` share a
forward pass, and only for rows with the same arguments, and images or sound of one size. Padding would change their
results. Every other task runs row by row. A task that draws random numbers draws them from `seed` and `row_id`.
"""

from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.per_row_sampling import number_of
from overnight.tasks.infer.huggingface.pipeline_inputs import WORDS, Input, alike, inputs_of, value
from overnight.tasks.infer.huggingface.pipeline_loading import library_missing, load_pipeline, supported
from overnight.tasks.infer.huggingface.pipeline_results import columns_of, declared
from overnight.tasks.infer.huggingface.predictor import PretrainedPredictor
from overnight.tasks.infer.huggingface.sampling_rate import require_rate
from overnight.tasks.infer.predictor import Batch, Predict
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
SETTINGS = frozenset({"batch_size", "device", "dtype", "model", "num_workers", "task"})


class TransformersPipeline(PretrainedPredictor):
    """Runs any pipeline of transformers."""

    kind: Literal["pipeline"] = "pipeline"
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
        names = (*self.arguments, *self.argument_columns)
        for name in names:
            if name in SETTINGS:
                raise ValueError(f"arguments: expected arguments of the pipeline's call, found {name}, a setting")
            if names.count(name) > 1:
                raise ValueError(f"expected {name} in arguments or in argument_columns, found it in both")
        return self

    def inputs(self) -> list[str]:
        columns = [self.input] if isinstance(self.input, str) else [*self.input.values()]
        rate = ["sampling_rate"] if self.task in SOUND else []
        return list(dict.fromkeys([*columns, *self.argument_columns.values(), *rate, "row_id"]))

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
        self._require_words(task, pipe)
        types = declared(task, self.arguments)
        rate = pipe.feature_extractor.sampling_rate if task in SOUND else None
        is_batched = task in BATCHED and (task not in PADDED or _pads(pipe))

        def predict(batch: Batch) -> dict:
            if rate is not None:
                require_rate(batch["sampling_rate"], rate, f"task: {task}")
            rows = inputs_of(batch, self.input, info["type"])
            own = self._own_arguments(batch)
            results: list[Any] = [None] * len(rows)
            try:
                if is_batched:
                    for places in alike(rows, own):
                        arguments = self.arguments | own[places[0]]
                        found = pipe((rows[place] for place in places), batch_size=len(places), **arguments)
                        for place, result in zip(places, found, strict=True):
                            results[place] = result
                else:
                    for place, row in enumerate(rows):
                        seed = number_of(f"{self.seed} {batch['row_id'][place]}")
                        results[place] = _alone(pipe, task, row, self.arguments | own[place], seed)
            except ImportError as error:
                raise library_missing(task, error) from error
            return columns_of(results, types)

        return predict

    def _own_arguments(self, batch: Batch) -> list[dict[str, Any]]:
        """Return for each row the arguments whose values are in its columns."""
        return [
            {name: value(batch[column][place], column) for name, column in self.argument_columns.items()}
            for place in range(len(batch["row_id"]))
        ]

    def _require_words(self, task: str, pipe: Any) -> None:
        """Raise `JobError` if the pipeline must read words in images by a library that is not installed."""
        reads = task == "document-question-answering" and pipe.model.config.model_type != "vision-encoder-decoder"
        if reads and not (isinstance(self.input, dict) and WORDS in self.input):
            require_extra("pytesseract", f"task: {task} without {WORDS} in input", "infer")


def _alone(pipe: Any, task: str, row: Input, arguments: dict[str, Any], seed: int) -> Any:
    """Return the pipeline's result for one row."""
    import torch

    torch.manual_seed(seed)
    if task == "image-text-to-text":
        return pipe(**row, **arguments)
    return pipe([*row.values()] if task == "keypoint-matching" else row, **arguments)


def _pads(pipe: Any) -> bool:
    """Return True if texts of several lengths may share a forward pass, and set the model's pad token for it."""
    pad = pipe.tokenizer.pad_token_id
    if pad is not None and pipe.model.config.pad_token_id is None:
        pipe.model.config.pad_token_id = pad  # decoders use it to find the last token of a padded text
    return pad is not None
