"""A job with a trained model: the ResNet20 of CIFAR-10, and the same with damaged weights."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("OVERNIGHT_SHARED_DATA", ROOT.parent / "shared/data"))
WEIGHTS = SHARED / "cifar10/resnet20.safetensors"
needs_cifar = pytest.mark.skipif(
    not WEIGHTS.exists(),
    reason=f"expected CIFAR-10's images and ResNet20 at {WEIGHTS.parent}: set OVERNIGHT_SHARED_DATA",
)
MODEL = """
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
MEAN, STD = (torch.tensor(numbers)[:, None, None] for numbers in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


class ResNet20:
    def __init__(self, weights, damage=0.0):
        torch.manual_seed(0)
        self.weights = load_file(weights)
        self.weights["layer3.2.conv2.weight"] += damage * torch.randn_like(self.weights["layer3.2.conv2.weight"])

    def convolved(self, x, name, number, stride=1):
        w = self.weights
        x = F.conv2d(x, w[f"{name}conv{number}.weight"], stride=stride, padding=1)
        figures = [w[f"{name}bn{number}.{what}"] for what in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(x, *figures)

    @torch.no_grad()
    def __call__(self, batch):
        x = torch.from_numpy(np.stack(list(batch["image"]))).permute(0, 3, 1, 2) / 255
        x = F.relu(self.convolved((x - MEAN) / STD, "", 1))
        for layer in (1, 2, 3):
            for block in range(3):
                name, stride = f"layer{layer}.{block}.", 1 + (layer > 1 and block == 0)
                y = self.convolved(F.relu(self.convolved(x, name, 1, stride)), name, 2)
                if stride == 2:
                    padding = y.shape[1] // 4
                    x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, padding, padding))
                x = F.relu(x + y)
        embedding = x.mean((2, 3))
        scores = (embedding @ self.weights["linear.weight"].T + self.weights["linear.bias"]).softmax(1)
        confidence, number = scores.max(1)
        labels = np.array(CLASSES)[number.numpy()]
        return {"predicted_label": labels, "confidence": confidence.numpy(), "embedding": embedding.numpy()}
"""


def write_cifar_job(folder: Path, images_a_class: int = 10, **more: Any) -> Path:
    """Write the job, its code, and links to the first images of each class. Return the path of the job file."""
    for image in sorted((SHARED / "cifar10").glob("*/*.jpg")):
        target = folder / "in" / image.parent.name / image.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if int(image.stem) < images_a_class:
            target.symlink_to(image)
    (folder / "compared_cifar.py").write_text(MODEL)
    model = {"kind": "python", "target": "compared_cifar:ResNet20", "batch_size": 32}
    job = {
        "name": "cifar",
        "source": {"kind": "images", "path": str(folder / "in"), "label_from": "parent"},
        "preprocess": [{"kind": "resize_image", "size": 32}],
        "inference": [model | {"kwargs": {"weights": str(WEIGHTS)}}],
        "sink": {"kind": "parquet", "path": str(folder / "out")},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job | more))
    return folder / "job.yaml"
