"""The text side of a model whose text and image embeddings share one space: CLIP, SigLIP and similar models.

In: texts. Out: float32 N x D, the model's projected features, never normalised. Only the text tower of a CLIP is
loaded. SigLIP was trained on texts padded to their full length without a mask, and gets texts in this form.
"""

from typing import Any

import numpy as np

from overnight.tasks.infer.huggingface.checkpoint import Checkpoint, Dtype


def embed_texts(checkpoint: Checkpoint, dtype: Dtype, texts: list[str]) -> np.ndarray:
    """Return the embeddings of `texts`, float32 N x D, computed on the CPU.

    Raise `JobError` for a model without a text side.
    """
    import torch
    from transformers import AutoConfig, AutoTokenizer

    config = checkpoint.load(AutoConfig)
    model = _text_model(checkpoint, config, dtype)
    tokenizer = checkpoint.load(AutoTokenizer)
    longest = getattr(config.text_config, "max_position_embeddings", None)
    is_siglip = config.model_type.startswith("siglip")
    padding = "max_length" if is_siglip else True
    encoded = tokenizer(texts, padding=padding, truncation=True, max_length=longest, return_tensors="pt")
    names = ("input_ids",) if is_siglip else ("input_ids", "attention_mask")
    given = {name: encoded[name] for name in names}
    with torch.inference_mode():
        return _features(model, given).float().numpy()


def _text_model(checkpoint: Checkpoint, config: Any, dtype: Dtype) -> Any:
    from transformers import AutoModel, CLIPTextModelWithProjection

    if config.model_type == "clip":
        # The nested settings keep their default of 512 if only the outer ones have the width.
        config.text_config.projection_dim = config.projection_dim
        return checkpoint.weights(CLIPTextModelWithProjection, dtype, config=config.text_config)[0]
    model = checkpoint.weights(AutoModel, dtype)[0] if hasattr(config, "text_config") else None
    if not hasattr(model, "get_text_features"):
        raise checkpoint.unusable(
            f"expected a model that embeds texts and images, such as CLIP, found a {config.model_type}. Search its "
            "embeddings with an image"
        )
    return model


def _features(model: Any, given: dict[str, Any]) -> Any:
    if hasattr(model, "get_text_features"):
        return model.get_text_features(**given).pooler_output
    return model(**given).text_embeds
