"""Small random detectors, and transformers by hand."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoImageProcessor,
    AutoModelForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    ResNetConfig,
    YolosConfig,
    YolosForObjectDetection,
)
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil
from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

LABELS = ["cat", "dog", "red house"]
NAMES = {"id2label": dict(enumerate(LABELS)), "label2id": {label: number for number, label in enumerate(LABELS)}}
SIZE = {"shortest_edge": 48, "longest_edge": 96}  # as these models have it: images keep their shape


def write_detector(folder: Path, kind: str) -> None:
    """A model with weights that tell its queries apart, and its image processor."""
    torch.manual_seed(0)
    if kind == "yolos":
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
        model: Any = YolosForObjectDetection(
            YolosConfig(**sizes, image_size=[64, 96], patch_size=16, num_detection_tokens=8, **NAMES)
        )
        YolosImageProcessorPil(size=SIZE).save_pretrained(folder)
    else:
        backbone = ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
        )
        sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1) | {"d_model": 32, "num_queries": 8}
        sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
        sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 37)
        unused = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
        model = DetrForObjectDetection(DetrConfig(**unused, backbone_config=backbone, **sizes, **NAMES))
        DetrImageProcessorPil(size=SIZE).save_pretrained(folder)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0, 0.3)
    model.save_pretrained(folder)


def detected(folder: Path, image: np.ndarray, threshold: float) -> list[tuple[str, float, list[float]]]:
    """Label, score and box of each object in one image, the most certain first, with plain transformers."""
    processor, model = _loaded(folder)
    with torch.inference_mode():
        outputs = model(**processor(images=image, return_tensors="pt"))
    (found,) = processor.post_process_object_detection(outputs, threshold, [image.shape[:2]])
    labels = [model.config.id2label[number] for number in found["labels"].tolist()]
    rows = list(zip(labels, found["scores"].tolist(), found["boxes"].tolist(), strict=True))
    return sorted(rows, key=lambda row: -row[1])


@cache
def _loaded(folder: Path) -> tuple[Any, Any]:
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    return processor, AutoModelForObjectDetection.from_pretrained(folder).eval()
