"""Images as inputs of a vision model, with the size and normalisation from the model's own files.

In: uint8 RGB, N x H x W x 3 stacked, or an object array of H x W x 3 arrays of different sizes. Out: float32, N x D.

Resizing and cropping run on the CPU, in the processor's PIL backend, with the same pixels with and without torchvision.
They are skipped when stacked images already have the model's size. Images go to the device as uint8; rescaling and
normalising run there. A processor that does more than that (EfficientNet's offset, MobileViT's BGR) is detected by a
comparison on loading. It then does all of its work itself. Rows never depend on the other rows of the batch.

A worker with a device has two calls at a time: while the device computes one, the images of the other are copied to it.
So the device waits neither for copies nor for Python.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch

Forward = Callable[["torch.Tensor"], "torch.Tensor"]


def image_calls(accelerators: Mapping[str, float]) -> int:
    """Return `Predictor.calls_at_once` of models on images: on a device, one computes while the other is copied."""
    return 2 if accelerators else 1


def placed(model: Any, device: "torch.device") -> Any:
    """Return the model on its device, in the memory layout of its images; see `DeviceTransfer`."""
    import torch

    return model.to(device) if device.type == "cpu" else model.to(device, memory_format=torch.channels_last)


def build_image_encoder(
    checkpoint: Checkpoint, device: "torch.device", forward: Forward
) -> Callable[[np.ndarray], Any]:
    """Return a function of images that returns `forward` of their pixel values, as a float32 tensor on the CPU.

    `forward` takes float32 N x 3 x H x W on the device, all of one size, and returns N x D.
    """
    import torch

    uploads = DeviceTransfer(device)
    pixel_values = _pixel_function(checkpoint, device, uploads.copy)

    def run(images: np.ndarray) -> "torch.Tensor":
        _check(images)
        rows, results = [], []
        with torch.inference_mode(), uploads.stream():
            for some_rows, pixels in pixel_values(images):
                rows.extend(some_rows)
                results.append(forward(pixels).float().cpu())
        return torch.cat(results)[np.argsort(rows)]

    return run


def _pixel_function(
    checkpoint: Checkpoint, device: "torch.device", upload: Callable[[np.ndarray], "torch.Tensor"]
) -> Callable[[np.ndarray], Iterator[tuple[list[int], "torch.Tensor"]]]:
    import torch
    from transformers import AutoImageProcessor

    if all(checkpoint.settings_file(name) is None for name in ("preprocessor_config.json", "processor_config.json")):
        raise checkpoint.unusable(
            "expected preprocessor_config.json beside the model, with the size and normalisation of its images, found "
            "none. Save the model's image processor there with save_pretrained"
        )
    processor = checkpoint.load(AutoImageProcessor, backend="pil")
    scale = processor.rescale_factor if processor.do_rescale else 1.0
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else (0.0, 1.0)
    mean, std = (torch.tensor(value, dtype=torch.float32, device=device).reshape(-1, 1, 1) for value in (mean, std))
    factor, offset = scale / std, mean / std

    def processed(image: np.ndarray, **settings: bool) -> np.ndarray:
        made = processor(image, input_data_format="channels_last", **settings)
        if list(made) != ["pixel_values"]:
            raise checkpoint.unusable(
                f"expected a processor with the single output pixel_values, found {', '.join(made)}"
            )
        return np.asarray(made["pixel_values"][0])

    def resized(image: np.ndarray) -> np.ndarray:
        return processed(image, do_rescale=False, do_normalize=False)

    def normalised(pixels: "torch.Tensor") -> "torch.Tensor":
        # In place and in two passes: three passes take twice as long.
        layout = torch.contiguous_format if device.type == "cpu" else torch.channels_last
        return pixels.to(torch.float32, memory_format=layout).mul_(factor).sub_(offset)

    def only_rescales_and_normalises(image: np.ndarray) -> bool:
        ours = normalised(torch.tensor(resized(image), device=device)[None])[0].cpu().numpy()
        expected = processed(image)
        return ours.shape == expected.shape and np.allclose(ours, expected, atol=1e-4)

    @lru_cache(maxsize=256)
    def has_model_size(shape: tuple[int, ...]) -> bool:
        image = _noise(shape)
        return np.array_equal(resized(image), image.transpose(2, 0, 1))

    on_device = all(only_rescales_and_normalises(_noise(shape)) for shape in ((40, 56, 3), (640, 480, 3)))
    if not on_device:
        logging.getLogger(__name__).warning(
            "model %s: its %s does more than rescale and normalise, so it works on the CPU, image by image",
            checkpoint.written,
            type(processor).__name__,
        )

    def pixel_values(images: np.ndarray) -> Iterator[tuple[list[int], "torch.Tensor"]]:
        if on_device and images.dtype != object and has_model_size(images.shape[1:]):
            pixels = torch.from_numpy(_planes(images)) if device.type == "cpu" else upload(images).permute(0, 3, 1, 2)
            yield list(range(len(images))), normalised(pixels)
            return
        by_shape: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
        for row, image in enumerate(images):
            made = resized(image) if on_device else processed(image)
            by_shape.setdefault(made.shape, []).append((row, made))
        for same in by_shape.values():
            stacked = upload(np.stack([made for _, made in same]))
            yield [row for row, _ in same], normalised(stacked) if on_device else stacked.float()

    return pixel_values


class DeviceTransfer:
    """Copies arrays to a device; on a CPU they stay in place.

    Each thread has its own stream, which runs beside the others'. It also has its own pinned memory, from which the
    device copies by itself. The next copy uses that memory again.
    """

    def __init__(self, device: "torch.device") -> None:
        self._device, self._own = device, threading.local()

    def stream(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which this thread's work goes to its own stream."""
        import torch

        if self._device.type == "cpu":
            return contextlib.nullcontext()
        if not hasattr(self._own, "stream"):
            self._own.stream = torch.Stream(device=self._device)
        return cast(contextlib.AbstractContextManager[Any], self._own.stream)

    def copy(self, array: np.ndarray) -> "torch.Tensor":
        """Return `array` on the device. Call it in a `stream` whose earlier work is done and fetched."""
        import torch

        found = torch.from_numpy(np.require(array, requirements=("C", "W")))
        if self._device.type == "cpu":
            return found
        pinned = getattr(self._own, "pinned", found[:0])
        if (pinned.dtype, pinned.shape[1:]) != (found.dtype, found.shape[1:]) or len(pinned) < len(found):
            pinned = self._own.pinned = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
        return pinned[: len(found)].copy_(found).to(self._device, non_blocking=True)


def _planes(images: np.ndarray) -> np.ndarray:
    """Return uint8 N x H x W x 3 as float32 N x 3 x H x W."""
    return images.transpose(0, 3, 1, 2).astype(np.float32, order="C")


def _noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _check(images: np.ndarray) -> None:
    for image in images if images.dtype == object else images[:1]:
        require_image(image)


def require_image(image: Any) -> np.ndarray:
    """Return `image` if it is a uint8 array of H x W x 3. Raise `RowError` if it is not."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        found = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise RowError(f"image: expected a uint8 array of H x W x 3, found {found}.")
    return image
