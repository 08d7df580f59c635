"""The table's model: a batch of columns f0 to f15, float32, in; `score`, float32, out. Any batch, one thread."""

import numpy as np
import torch
from progress import note

FEATURES = [f"f{i}" for i in range(16)]


def network() -> torch.nn.Module:
    """Return a network of 16 -> 64 -> 32 -> 1 with the same random weights in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [torch.nn.Linear(inner, outer) for inner, outer in ((16, 64), (64, 32), (32, 1))]
    relu = torch.nn.ReLU()
    return torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2]).eval()


class MLP:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.network = network()

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        features = torch.from_numpy(np.stack([batch[name] for name in FEATURES], axis=1))
        with torch.inference_mode():
            score = self.network(features).squeeze(1).numpy()
        note(len(score))
        return {"score": score}
