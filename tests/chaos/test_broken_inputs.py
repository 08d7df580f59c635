"""Two hundred images, one in twenty broken, each in a way of its own: every one is decoded rightly or told of."""

import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from tests.chaos.runs import Start, finish

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

STEPS = '''
import os
from pathlib import Path

import numpy as np


class Meddle:
    """Mean red, green and blue. The first call comes after the listing: it takes one file away and changes another."""

    def __init__(self, folder):
        self.folder = Path(folder)
        (self.folder / "vanished.png").unlink(missing_ok=True)
        os.utime(self.folder / "changed.png", ns=(1, 1_000_000_000))

    def __call__(self, batch):
        means = [np.asarray(image, np.float64).mean(axis=(0, 1)) for image in batch["image"]]
        return {name: np.array([mean[i] for mean in means]) for i, name in enumerate("rgb")}
'''


def encoded(image: Image.Image, kind: str, **settings: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return buffer.getvalue()


def plain(number: int) -> Image.Image:
    return Image.fromarray(np.full((12, 16, 3), (number, 100, 200 - number), np.uint8))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """190 whole images and ten others. `unreadable.png` has no permission bits."""
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(190):
        (folder / f"{i:03d}.png").write_bytes(encoded(plain(i), "PNG"))
    red, blue = Image.new("RGB", (12, 12), (255, 0, 0)), Image.new("RGB", (12, 12), (0, 0, 255))
    others = {
        "truncated.png": encoded(Image.effect_noise((64, 64), 50), "PNG")[:1500],
        "empty.png": b"",
        "text.jpg": b"this is no image at all",
        "huge.png": encoded(Image.new("1", (20_000, 20_000)), "PNG"),
        "cmyk.jpg": encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95),
        "deep.png": encoded(Image.fromarray(np.full((12, 12), 0x8012, np.uint16)), "PNG"),
        "animated.gif": encoded(red, "GIF", save_all=True, append_images=[blue, blue]),
        "unreadable.png": encoded(plain(1), "PNG"),
        "vanished.png": encoded(plain(2), "PNG"),
        "changed.png": encoded(plain(3), "PNG"),
    }
    for name, content in others.items():
        (folder / name).write_bytes(content)
    (folder / "unreadable.png").chmod(0)
    return folder


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """Where `start` runs `job.yaml`."""
    (tmp_path / "meddling_steps.py").write_text(STEPS)
    return tmp_path


def without_privilege() -> tuple[str, ...]:
    """What to put before a command so that permissions hold for root too."""
    if os.geteuid():
        return ()
    if not shutil.which("setpriv"):
        pytest.skip("root may read everything, and there is no setpriv to take that right away")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")


def test_each_of_ten_kinds_of_broken_input_is_decoded_or_quarantined_and_none_is_lost(
    images: Path, start: Start, tmp_path: Path
) -> None:
    job = {
        "name": "broken",
        "retries": {"delay_seconds": 1},
        "source": {"kind": "images", "path": str(images)},
        "preprocess": [
            {"kind": "decode_image"},
            {"kind": "python", "target": "meddling_steps:Meddle", "kwargs": {"folder": str(images)}},
        ],
        "checks": {"max_quarantined": 0.05},
        "sink": {"kind": "parquet", "path": "out", "rows_per_part": 50},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    receipt = finish(start(before=without_privilege(), OVERNIGHT_FORK_SERVER=""))  # its forks are to be without it too
    tables = [pq.read_table(tmp_path / "out" / file) for file in receipt["files"]]
    rows = {row["row_id"]: (row["r"], row["g"], row["b"]) for table in tables for row in table.to_pylist()}
    assert len(rows) == sum(map(len, tables)) == 193
    assert (receipt["rows_in"], receipt["rows_out"]) == (200, 193)
    assert (receipt["rows_filtered"], receipt["rows_quarantined"]) == (0, 7)
    assert all(rows[f"{i:03d}.png"] == (i, 100, 200 - i) for i in range(190))
    assert rows["deep.png"] == (0x80, 0x80, 0x80)
    assert rows["animated.gif"] == (255, 0, 0)
    assert np.allclose(rows["cmyk.jpg"], (255, 0, 0), atol=3)
    [quarantine] = (tmp_path / "out/_overnight/all/quarantine").glob("*.parquet")
    lost = {row["row_id"]: row for row in pq.read_table(quarantine).to_pylist()}
    expected = {
        "truncated.png": ("preprocess", "", r"expected a whole PNG image of 64 x 64, found 1500 bytes"),
        "empty.png": ("preprocess", "RowError", r"the file is empty \(0 bytes\)"),
        "text.jpg": ("preprocess", "UnidentifiedImageError", r"expected an image \(.*\), found 23 bytes that begin"),
        "huge.png": ("preprocess", "", r"expected at most max_image_pixels = \d+ pixels"),
        "unreadable.png": ("ingest", "PermissionError", r"Permission denied: '.*unreadable\.png'"),
        "vanished.png": ("ingest", "SourceVanished", r"expected a file, as listed, found no file any more"),
        "changed.png": ("ingest", "SourceChanged", r"the file changed .* \d+ bytes, last changed at .* UTC, as listed"),
    }
    assert lost.keys() == expected.keys()
    for name, (stage, kind, message) in expected.items():
        row = lost[name]
        assert (row["stage"], kind in ("", row["error_type"])) == (stage, True), row
        assert re.search(message, row["error_message"]), row
