"""The embedding of a search query, an image or a text, by a model of the job.

It runs on the CPU, whatever the job's workers reserve: one row needs no accelerator.
"""

from collections.abc import Sequence

import numpy as np

from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface.text_encoder import embed_texts
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.predictor import Batch, Predictor
from overnight.tasks.rows.result import Outcome

Embedder = ImageEmbedding | TextEmbedding


def embedder(models: Sequence[Predictor], name: str | None) -> tuple[Embedder, str]:
    """Return the model that embeds a query, and the name of the published column that has its embeddings.

    `name` chooses one of the job's `models`. If it is None, the only model that embeds is chosen. Raise `JobError` if
    no model embeds, none has this name, or several embed and no name is given.
    """
    found = [model for model in models if isinstance(model, Embedder)]
    names = ", ".join(model.name or model.kind for model in found)
    if not found:
        kinds = ", ".join(model.kind for model in models) or "no model"
        raise JobError(f"expected a job with image_embedding or text_embedding, found {kinds}.")
    chosen = [model for model in found if name is None or model.name == name]
    if not chosen:
        raise JobError(f"model {name}: expected one of {names}, which embed.")
    if len(chosen) > 1:
        raise JobError(f"several models embed: {names}. Choose one of them as model.")
    return chosen[0], f"{chosen[0].name}_embedding" if len(models) > 1 else "embedding"


def embed_image(model: Embedder, image: np.ndarray) -> np.ndarray:
    """Return the embedding (D numbers) of one image (uint8, 1 x H x W x 3). Raise `JobError` for a model of texts."""
    if isinstance(model, TextEmbedding):
        raise JobError("image: the job's model embeds texts. Search with a text.")
    return _embedding(model, {"image": image})


def embed_text(model: Embedder, text: str) -> np.ndarray:
    """Return the embedding (D numbers) of one text.

    Raise `JobError` if the text is empty or the model embeds only images.
    """
    if not text.strip():
        raise JobError("text: expected a text, found an empty one.")
    if isinstance(model, TextEmbedding):
        return _embedding(model, {model.text_column: np.array([text], object)})
    return embed_texts(model.checkpoint(), model.dtype, [text])[0]


def _embedding(model: Embedder, row: Batch) -> np.ndarray:
    returned = model.model_copy(update={"num_gpus": 0, "resources": {}}).load()(row)
    columns = returned.columns if isinstance(returned, Outcome) else returned
    return np.asarray(columns["embedding"][0])
