"""The embedding of a search query, an image or a text, by a model of the job.

It runs on the CPU, whatever the job's workers reserve: one row needs no accelerator.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype
from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.predictor import Batch, Predictor
from overnight.tasks.rows.result import Outcome

Embedder = ImageEmbedding | TextEmbedding | EndpointEmbedding
TEXTS = (TextEmbedding, EndpointEmbedding)  # models that embed only texts


def embedder(models: Sequence[Predictor], name: str | None) -> tuple[Embedder, str]:
    """Return the model that embeds a query, the only one or that of this `name`, and the column of its embeddings."""
    embedders = [model for model in models if isinstance(model, Embedder)]
    if not embedders:
        kinds = ", ".join(model.kind for model in models) or "no model"
        raise JobError(f"expected a job with image_embedding, text_embedding or endpoint_embedding, found {kinds}.")
    names = ", ".join(model.name or model.kind for model in embedders)
    choices = [model for model in embedders if name is None or model.name == name]
    if not choices:
        raise JobError(f"model {name}: expected one of {names}, which embed.")
    if len(choices) > 1:
        raise JobError(f"several models embed: {names}. Choose one of them as model.")
    column = f"{choices[0].name}_embedding" if len(models) > 1 else "embedding"
    return choices[0], column


def has_settings(model: Embedder, settings: Mapping[str, Any]) -> bool:
    """Return True if the settings of an earlier run are those of `model`, except what its files show."""
    if isinstance(model, EndpointEmbedding):
        return all(settings.get(name) == getattr(model, name) for name in ("kind", "model", "dimensions"))
    return settings.get("kind") == model.kind and settings.get("dtype", "float32") == model.dtype


def embed_image(model: Embedder, image: np.ndarray) -> np.ndarray:
    """Return the embedding (D numbers) of one image (uint8, 1 x H x W x 3). Raise `JobError` for a model of texts."""
    if isinstance(model, TEXTS):
        raise JobError("image: the job's model embeds texts. Search with a text.")
    return _embedding(model, {"image": image})


def embed_text(model: Embedder, text: str) -> np.ndarray:
    """Return the embedding (D numbers) of one text. Raise `JobError` for a model that embeds only images."""
    if not text.strip():
        raise JobError("text: expected a text, found an empty one.")
    if isinstance(model, EndpointEmbedding):
        model = model.for_preview().model_copy(update={"prompt": None, "reuse": None})  # these are for rows
    if isinstance(model, TEXTS):
        return _embedding(model, {model.text_column: np.array([text], object), "row_id": np.array(["query"], object)})
    return _embed_beside_images(model.checkpoint(), model.dtype, text)


def _embedding(model: Embedder, row: Batch) -> np.ndarray:
    result = model.model_copy(update={"num_gpus": 0, "resources": {}}).load()(row)
    columns = result.columns if isinstance(result, Outcome) else result
    if isinstance(result, Outcome) and result.failed:
        raise JobError(f"the query has no embedding: {result.failed[0]}", "infer")
    return np.asarray(columns["embedding"][0])


def _embed_beside_images(checkpoint: Checkpoint, dtype: Dtype, text: str) -> np.ndarray:
    """Return the projected features of a text, never normalised, by a model such as CLIP or SigLIP."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    config = checkpoint.load(AutoConfig)
    model = _text_model(checkpoint, config, dtype)
    tokenizer = checkpoint.load(AutoTokenizer)
    longest = getattr(config.text_config, "max_position_embeddings", None)
    # SigLIP was trained on texts padded to their full length without a mask.
    is_siglip = config.model_type.startswith("siglip")
    tokens = tokenizer(
        [text],
        padding="max_length" if is_siglip else True,
        truncation=True,
        max_length=longest,
        return_tensors="pt",
    )
    inputs = {"input_ids": tokens["input_ids"]}
    if not is_siglip:
        inputs["attention_mask"] = tokens["attention_mask"]
    with torch.inference_mode():
        if hasattr(model, "get_text_features"):
            features = model.get_text_features(**inputs).pooler_output
        else:
            features = model(**inputs).text_embeds
    embedding: np.ndarray = features.float().numpy()[0]
    return embedding


def _text_model(checkpoint: Checkpoint, config: Any, dtype: Dtype) -> Any:
    """Return the model, or only its text tower if it is a CLIP. Raise `JobError` for a model without a text side."""
    from transformers import AutoModel, CLIPTextModelWithProjection

    if config.model_type == "clip":
        # The nested settings keep their default of 512 if only the outer ones have the width.
        config.text_config.projection_dim = config.projection_dim
        return checkpoint.weights(CLIPTextModelWithProjection, dtype, config=config.text_config)[0]
    if hasattr(config, "text_config"):
        model, _ = checkpoint.weights(AutoModel, dtype)
        if hasattr(model, "get_text_features"):
            return model
    raise checkpoint.unusable(
        f"expected a model that embeds texts and images, such as CLIP, found a {config.model_type}. Search its "
        "embeddings with an image"
    )
