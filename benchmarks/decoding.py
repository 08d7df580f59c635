"""Compare `decode: fast` with `decode: exact`: CPU time, pixels and predictions. `python benchmarks/decoding.py`.

Photos are cut to 224 x 224 for the pixels and the CPU time, and to 32 x 32 for the predictions; CIFAR-10's images have
that size. The model is a ResNet20 trained on CIFAR-10 (He et al. 2015, https://arxiv.org/abs/1512.03385, table 6,
option A shortcuts). Most photos show none of its classes, so only the agreement of both predictions counts there.
"""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from overnight.tasks.preprocess.steps.resize_image import ResizeImage

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
HOW = ("exact", "fast")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    torch.set_num_threads(1)
    weights = load_file(SHARED / "cifar10/resnet20.safetensors")
    photos = [file.read_bytes() for file in sorted((SHARED / "photos").glob("*.jpg"))]
    labelled = sorted((SHARED / "cifar10").glob("*/*.jpg"))
    classes = sorted({file.parent.name for file in labelled})
    truth = np.array([classes.index(file.parent.name) for file in labelled])
    print("| | exact | fast |\n| --- | ---: | ---: |")
    costs = [milliseconds(photos, how) for how in HOW]
    print(f"| CPU ms a photo | {costs[0]:.2f} | {costs[1]:.2f} ({costs[0] / costs[1]:.1f} times as quick) |")
    pixels = [resized(photos, 224, how).astype(int) for how in HOW]
    print(
        f"| mean difference of {len(photos)} photos' pixels, of 255 | 0 | {np.abs(pixels[1] - pixels[0]).mean():.1f} |"
    )
    small = [file.read_bytes() for file in labelled]
    for what, files in (("photos", photos), ("CIFAR-10 images", small)):
        found = [probabilities(weights, resized(files, 32, how)) for how in HOW]
        same = int((found[0].argmax(1) == found[1].argmax(1)).sum())
        apart = np.abs(found[1] - found[0]).max(1).mean()
        print(f"| ResNet20 predicts the same for {what} | {len(files)} | {same} |")
        print(f"| its probabilities of {what} differ by, on average | 0 | {apart:.3f} |")
    right = [f"{(probabilities(weights, resized(small, 32, how)).argmax(1) == truth).mean():.1%}" for how in HOW]
    print(f"| its accuracy on {len(truth)} CIFAR-10 images | {right[0]} | {right[1]} |")


def resized(files: list[bytes], size: int, how: str) -> np.ndarray:
    """Decode and resize files to uint8 N x size x size x 3."""
    table = pa.table({"image": pa.array(files, pa.large_binary())})
    return np.asarray(ResizeImage(size=size, decode=how).build()(table).columns["image"])


def milliseconds(files: list[bytes], how: str) -> float:
    """Return the CPU time of one file at 224 x 224, the best of five rounds."""
    resized(files[:1], 224, how)
    rounds = []
    for _ in range(5):
        started = time.process_time()
        resized(files, 224, how)
        rounds.append(time.process_time() - started)
    return min(rounds) / len(files) * 1000


@torch.inference_mode()
def probabilities(weights: dict[str, torch.Tensor], images: np.ndarray) -> np.ndarray:
    """Return the probabilities of the ten classes as an array of N x 10."""
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)

    def convolved(x: torch.Tensor, name: str, number: int, stride: int = 1) -> torch.Tensor:
        made = F.conv2d(x, weights[f"{name}conv{number}.weight"], stride=stride, padding=1)
        kinds = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(made, *(weights[f"{name}bn{number}.{kind}"] for kind in kinds))

    x = F.relu(convolved(x, "", 1))
    for layer, block in ((layer, block) for layer in (1, 2, 3) for block in range(3)):
        stride = 2 if layer > 1 and block == 0 else 1
        name = f"layer{layer}.{block}."
        made = convolved(F.relu(convolved(x, name, 1, stride)), name, 2)
        if stride == 2:
            more = (made.shape[1] - x.shape[1]) // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more, more))
        x = F.relu(made + x)
    return F.linear(x.mean((2, 3)), weights["linear.weight"], weights["linear.bias"]).softmax(1).numpy()


if __name__ == "__main__":
    main()
