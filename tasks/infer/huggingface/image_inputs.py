"""Images as inputs of a vision model, with the size and normalisation from the model's own files.

In: uint8 RGB, N x H x W x 3 stacked, or an object array of H x W x 3 arrays of different sizes. Out: float32, N x D.
Rows never depend on the other rows of the batch. A worker with a device has two calls at a time: while the device
computes one, the images of the other are copied to it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.media import require_image
from overnight.tasks.infer.huggingface.saved_model import PretrainedPredictor

if TYPE_CHECKING:
    import torch


class ImagePredictor(PretrainedPredictor):
    """A saved model that gets images."""

    def inputs(self) -> list[str]:
        return ["image"]


class ImageEncoder(ImagePredictor):
    """A saved model that computes one vector per image, in two calls at a time on a device."""

    def calls_at_once(self) -> int:
        return 2 if self.accelerators() else 1

    def encoder(
        self,
        checkpoint: Checkpoint,
        model: Any,
        device: "torch.device",
        forward: Callable[[Any, "torch.Tensor"], "torch.Tensor"],
    ) -> Callable[[np.ndarray], Any]:
        """Return a function that takes images and returns the vectors of `forward`, float32 N x D on the CPU."""
        import torch

        model = model.to(device)
        if device.type != "cpu":
            model = model.to(memory_format=torch.channels_last)  # as its images have there
        transfer = DeviceTransfer(device)
        pixel_values = PixelValues(checkpoint, device, transfer.copy)

        def encode(images: np.ndarray) -> "torch.Tensor":
            for image in images if images.dtype == object else images[:1]:
                require_image(image)
            rows: list[int] = []
            vectors = []
            with torch.inference_mode(), transfer.stream():
                for numbers, pixels in pixel_values(images):
                    rows.extend(numbers)
                    vectors.append(forward(model, pixels.to(model.dtype)).float().cpu())
            return torch.cat(vectors)[np.argsort(rows)]

        return encode


class PixelValues:
    """A function that takes images and yields their pixel values on the device, in groups of images of one size.

    The model's image processor resizes and crops on the CPU, in its PIL backend: the same pixels with and without
    torchvision. Stacked images that have the model's size skip this. They go to the device as uint8, and are rescaled
    and normalised there. Some processors do more (EfficientNet's offset, MobileViT's BGR): a comparison on loading
    detects them, and they do all of their work on the CPU.
    """

    def __init__(
        self, checkpoint: Checkpoint, device: "torch.device", upload: Callable[[np.ndarray], "torch.Tensor"]
    ) -> None:
        self._checkpoint, self._device, self._upload = checkpoint, device, upload
        self._processor = load_processor(checkpoint)
        self._factor, self._offset = self._normalisation()
        self._has_model_size = lru_cache(maxsize=256)(self._is_unchanged)
        self._on_device = all(map(self._only_rescales_and_normalises, ((40, 56, 3), (640, 480, 3))))
        if not self._on_device:
            logging.getLogger(__name__).warning(
                "model %s: its %s does more than rescale and normalise, so it works on the CPU, image by image",
                checkpoint.written,
                type(self._processor).__name__,
            )

    def __call__(self, images: np.ndarray) -> Iterator[tuple[list[int], "torch.Tensor"]]:
        """Yield row numbers, and the pixel values of these rows as float32 N x 3 x H x W."""
        import torch

        if self._on_device and images.dtype != object and self._has_model_size(images.shape[1:]):
            if self._device.type == "cpu":
                pixels = torch.from_numpy(_planes(images))
            else:
                pixels = self._upload(images).permute(0, 3, 1, 2)
            yield list(range(len(images))), self._normalised(pixels)
            return
        rows_by_shape: dict[tuple[int, ...], list[int]] = {}
        arrays = []
        for row, image in enumerate(images):
            arrays.append(self._prepared(image))
            rows_by_shape.setdefault(arrays[row].shape, []).append(row)
        for rows in rows_by_shape.values():
            pixels = self._upload(np.stack([arrays[row] for row in rows]))
            if self._on_device:
                yield rows, self._normalised(pixels)
            else:
                yield rows, pixels.float()

    def _normalisation(self) -> tuple["torch.Tensor", "torch.Tensor"]:
        """Return the factor and the offset that rescale and normalise, on the device."""
        processor = self._processor
        scale = processor.rescale_factor if processor.do_rescale else 1.0
        if not processor.do_normalize:
            return self._per_channel(scale), self._per_channel(0.0)
        std = self._per_channel(processor.image_std)
        return scale / std, self._per_channel(processor.image_mean) / std

    def _per_channel(self, values: Any) -> "torch.Tensor":
        import torch

        return torch.tensor(values, dtype=torch.float32, device=self._device).reshape(-1, 1, 1)

    def _processed(self, image: np.ndarray, **settings: bool) -> np.ndarray:
        outputs = self._processor(image, input_data_format="channels_last", **settings)
        if list(outputs) != ["pixel_values"]:
            names = ", ".join(outputs)
            raise self._checkpoint.unusable(f"expected a processor that makes pixel_values alone, found {names}")
        return np.asarray(outputs["pixel_values"][0])

    def _prepared(self, image: np.ndarray) -> np.ndarray:
        """Return what the processor makes of an image on the CPU."""
        if self._on_device:
            return self._resized(image)
        return self._processed(image)

    def _resized(self, image: np.ndarray) -> np.ndarray:
        return self._processed(image, do_rescale=False, do_normalize=False)

    def _normalised(self, pixels: "torch.Tensor") -> "torch.Tensor":
        import torch

        # In place and in two passes: three take twice as long.
        layout = torch.contiguous_format if self._device.type == "cpu" else torch.channels_last
        return pixels.to(torch.float32, memory_format=layout).mul_(self._factor).sub_(self._offset)

    def _only_rescales_and_normalises(self, shape: tuple[int, ...]) -> bool:
        """Return True if the processor only rescales and normalises an image that is resized."""
        import torch

        image = _noise(shape)
        ours = self._normalised(torch.tensor(self._resized(image), device=self._device)[None])[0].cpu().numpy()
        theirs = self._processed(image)
        return ours.shape == theirs.shape and np.allclose(ours, theirs, atol=1e-4)

    def _is_unchanged(self, shape: tuple[int, ...]) -> bool:
        """Return True if images of this shape already have the model's size."""
        image = _noise(shape)
        return np.array_equal(self._resized(image), image.transpose(2, 0, 1))


def load_processor(checkpoint: Checkpoint) -> Any:
    """Return the model's image processor. Raise `JobError` if the model's files have none."""
    from transformers import AutoImageProcessor

    if all(checkpoint.settings_file(name) is None for name in ("preprocessor_config.json", "processor_config.json")):
        raise checkpoint.unusable(
            "expected preprocessor_config.json beside the model, with the size and normalisation of its images, found "
            "none. Save the model's image processor there with save_pretrained"
        )
    return checkpoint.load(AutoImageProcessor, backend="pil")


class DeviceTransfer:
    """Copies arrays to a device; for a CPU it copies nothing.

    Each thread has a stream of its own on the device, so that the work of several threads overlaps. It also has its own
    pinned memory, from which the device copies by itself. The next copy of the thread uses that memory again.
    """

    def __init__(self, device: "torch.device") -> None:
        self._device, self._local = device, threading.local()

    def stream(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which this thread's work on the device goes to the thread's own stream."""
        import torch

        if self._device.type == "cpu":
            return contextlib.nullcontext()
        if not hasattr(self._local, "stream"):
            self._local.stream = torch.Stream(device=self._device)
        return cast(contextlib.AbstractContextManager[Any], self._local.stream)

    def copy(self, array: np.ndarray) -> "torch.Tensor":
        """Return `array` on the device, in the context of `stream`, when this thread's last copy is no longer used."""
        import torch

        tensor = torch.from_numpy(np.require(array, requirements=("C", "W")))
        if self._device.type == "cpu":
            return tensor
        memory = getattr(self._local, "pinned", tensor[:0])
        if (memory.dtype, memory.shape[1:]) != (tensor.dtype, tensor.shape[1:]) or len(memory) < len(tensor):
            memory = self._local.pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return memory[: len(tensor)].copy_(tensor).to(self._device, non_blocking=True)


def _planes(images: np.ndarray) -> np.ndarray:
    """Return uint8 N x H x W x 3 as float32 N x 3 x H x W."""
    return images.transpose(0, 3, 1, 2).astype(np.float32, order="C")


def _noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
