"""The vision model of all image contenders: uint8 N x H x W x 3 of the model's size in, float32 N x D out.

It normalises in float32, in place, with the settings of the model's processor. It has one thread, because there is a
worker for each core.
"""

import json
from pathlib import Path

import numpy as np
import torch
from progress import note
from transformers import CLIPVisionModelWithProjection


class VisionModel:
    def __init__(self, folder: str, threads: int = 1, device: str = "cpu") -> None:
        torch.set_num_threads(threads)
        self.device = device
        self.model = CLIPVisionModelWithProjection.from_pretrained(folder).eval().to(device)
        settings = json.loads((Path(folder) / "preprocessor_config.json").read_text())
        self.mean = 255 * torch.tensor(settings["image_mean"], device=device).reshape(1, 3, 1, 1)
        self.std = 255 * torch.tensor(settings["image_std"], device=device).reshape(1, 3, 1, 1)

    def __call__(self, images: np.ndarray) -> np.ndarray:
        pixels = torch.from_numpy(np.ascontiguousarray(images)).to(self.device).permute(0, 3, 1, 2)
        with torch.inference_mode():
            pixels = pixels.to(torch.float32, memory_format=torch.contiguous_format).sub_(self.mean).div_(self.std)
            embedding = self.model(pixel_values=pixels).image_embeds.cpu().numpy()
        note(len(images))
        return embedding
