"""Photos and a CLIP model that a benchmark makes for itself: JPEG files of soft colours, and random weights."""

from pathlib import Path
from typing import Any

SIZE = (640, 480)


def write_photo(path: Path, random: Any) -> None:
    """Write a JPEG file of `SIZE` pixels, drawn by `random`, a generator of NumPy."""
    import numpy as np
    from PIL import Image

    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8))
    coarse.resize(SIZE, Image.Resampling.BICUBIC).save(path, quality=90)


def write_clip(folder: Path, width: int, layers: int, seed: int = 0) -> None:
    """Write a CLIP model for images of 224 pixels, with towers of `width` and `layers`, and its processor."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    torch.manual_seed(seed)
    tower = {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
    }
    vision = {**tower, "image_size": 224, "patch_size": 32}
    CLIPModel(CLIPConfig(text_config=tower, vision_config=vision, projection_dim=64)).save_pretrained(folder)
    CLIPImageProcessorPil().save_pretrained(folder)
