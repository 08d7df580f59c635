"""Write the reference of image contenders: the embedding of each original, one by one, for three kinds of pixels.

`exact`: Pillow, bicubic, covering the square, cropped to the centre, as in the tutorial's processor. `fast`: the same
with `fast_decode.py`. `squash`: Pillow, bilinear, to the square without cropping, as in Daft.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fast_decode import covering, decode
from PIL import Image
from vision_model import VisionModel


def exact(image: Image.Image, size: int) -> np.ndarray:
    height, width = covering(image.height, image.width, size)
    top, left = (height - size) // 2, (width - size) // 2
    scaled = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))
    return scaled[top : top + size, left : left + size]


if __name__ == "__main__":
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    told = json.loads((data / "settings.json").read_text())
    model, size, made = VisionModel(told["model"]), told["size"], []
    for file in sorted((data / "originals").iterdir()):
        image = Image.open(file).convert("RGB")
        squashed = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
        kinds = {"exact": exact(image, size), "fast": decode(file.read_bytes(), size), "squash": squashed}
        made.append({"name": file.stem, **{kind: model(pixels[None])[0] for kind, pixels in kinds.items()}})
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(made), out / "reference.parquet")
