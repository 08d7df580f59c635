"""Train the demo's digit classifier, a small ResNet in Hugging Face format, in about 8 seconds on two cores.

It reads training/<digit>/*.png from `make_data`. It writes model/ with config.json, model.safetensors and
preprocessor_config.json, which `AutoModelForImageClassification` and `AutoImageProcessor` load. It also writes
model/accuracy.json, measured on every sixth training image, which the model never saw.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    import torch
    from transformers import ResNetForImageClassification

SIZE = 32
MEAN, STD = 0.5, 0.5
EPOCHS, BATCH = 12, 64


def train(folder: Path) -> float:
    """Train the model unless it exists, and return its accuracy on the held-out images."""
    target = folder / "model"
    if not target.exists():
        _train(folder / "training", target)
    return float(json.loads((target / "accuracy.json").read_text())["held_out"])


def _train(images: Path, target: Path) -> None:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.manual_seed(0)
    pixels, labels = _load(images)
    held_out = torch.arange(len(labels)) % 6 == 0
    config = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64],
        depths=[1, 1, 1],
        layer_type="basic",
        id2label={number: str(number) for number in range(10)},
        label2id={str(number): number for number in range(10)},
    )
    model = ResNetForImageClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    seen = torch.nonzero(~held_out).flatten()
    steps = EPOCHS * -(-len(seen) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in seen[torch.randperm(len(seen))].split(BATCH):
            shifts = torch.randint(-2, 3, (2,)).tolist()
            shifted = torch.roll(pixels[batch], shifts, dims=(2, 3))
            loss = model(pixel_values=shifted, labels=labels[batch]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.inference_mode():
        predicted = model(pixel_values=pixels[held_out]).logits.argmax(1)
    accuracy = (predicted == labels[held_out]).float().mean().item()
    _save(model, accuracy, target)


def _load(images: Path) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return normalised pixels as float32 (N, 3, SIZE, SIZE), and labels as int64 (N,)."""
    import torch

    files = sorted(images.glob("*/*.png"), key=lambda file: file.name)
    pixels = np.stack([np.asarray(Image.open(file).convert("RGB").resize((SIZE, SIZE))) for file in files])
    normalised = (pixels.astype(np.float32) / 255 - MEAN) / STD
    labels = torch.tensor([int(file.parent.name) for file in files])
    return torch.from_numpy(normalised).permute(0, 3, 1, 2).contiguous(), labels


def _save(model: "ResNetForImageClassification", accuracy: float, target: Path) -> None:
    unfinished = target.with_name("model.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": SIZE, "width": SIZE},
        "resample": int(Image.Resampling.BICUBIC),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [MEAN] * 3,
        "image_std": [STD] * 3,
    }
    (unfinished / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")
    (unfinished / "accuracy.json").write_text(json.dumps({"held_out": accuracy}) + "\n")
    unfinished.rename(target)


if __name__ == "__main__":
    print(f"{train(Path(sys.argv[1])):.1%} correct on images that it never saw")
