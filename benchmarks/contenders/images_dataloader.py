"""PyTorch's DataLoader by hand: worker processes decode and collate uint8 batches, and this process runs the model.

It follows PyTorch's tuning guide: one worker per core, one thread per worker, and batches through shared memory. This
process imports the model only after the workers began, so that they are cheap to start (`fork`, their default here).
`python images_dataloader.py DATA OUT [halves]`: `fast_decode.py` decodes.
"""

import sys

import torch
from data import Results, image_paths, settings
from fast_decode import decode_files
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    """A dataset of whole batches: one copy into shared memory, instead of one per image and a collation."""

    def __init__(self, paths: list[str], size: int, batch: int, halves: bool) -> None:
        self.paths, self.size, self.batch, self.halves = paths, size, batch, halves

    def __len__(self) -> int:
        return (len(self.paths) + self.batch - 1) // self.batch

    def __getitem__(self, number: int) -> tuple[list[str], torch.Tensor]:
        if number >= len(self):
            raise IndexError
        paths = self.paths[number * self.batch : (number + 1) * self.batch]
        return paths, torch.from_numpy(decode_files(paths, self.size, self.halves))


if __name__ == "__main__":
    told, out = settings()
    torch.set_num_threads(1)
    photos = Photos(image_paths(told["images"]), told["size"], 16, "halves" in sys.argv[3:])
    batches = iter(DataLoader(photos, batch_size=None, num_workers=told["cpus"], prefetch_factor=4))
    from vision_model import VisionModel

    model, results = VisionModel(told["model"]), Results(out / "results.parquet")
    for paths, images in batches:
        results.add(paths, model(images.numpy()))
    results.close()
