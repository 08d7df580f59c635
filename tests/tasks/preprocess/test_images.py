"""decode_image and resize_image beyond the promises of all steps: what Pillow shows, and headers that lie."""

import io
import struct
import warnings
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFile

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.images.scaling import decode_scaled
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.rows import tensors
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS
from tests.contracts.steps.adapter import applied, made, named, reasons

RANDOM = np.random.default_rng(7)


def smooth(height: int, width: int) -> np.ndarray:
    coarse = Image.fromarray(RANDOM.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


def encode(image: np.ndarray | Image.Image, kind: str = "PNG", **settings: Any) -> bytes:
    buffer = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(buffer, kind, **settings)
    return buffer.getvalue()


def run(step: DecodeImage | ResizeImage, *values: bytes | np.ndarray) -> pa.Table:
    column = pa.array(values, pa.large_binary()) if isinstance(values[0], bytes) else tensors.to_arrow(list(values))
    return applied(step, named(pa.table({"image": column})))


def decoded(encoded: bytes) -> np.ndarray:
    [row] = made(run(DecodeImage(), encoded))
    return row["image"]


def resized(*encoded: bytes, **settings: Any) -> np.ndarray:
    block = run(ResizeImage(**settings), *encoded)
    assert reasons(block) == {}
    return tensors.to_numpy(block["image"]).astype(int)


def reason(block: pa.Table) -> str:
    [only] = reasons(block).values()
    return only


PHOTO = Image.fromarray(smooth(24, 32))
TRANSPARENT = PHOTO.convert("RGBA")
TRANSPARENT.putalpha(0)
FILES = {
    **{kind: encode(PHOTO, kind) for kind in ("JPEG", "WEBP", "BMP", "TIFF", "PPM", "GIF", "AVIF", "JPEG2000")},
    "CMYK": encode(PHOTO.convert("CMYK"), "JPEG"),
    "grey": encode(PHOTO.convert("L"), "JPEG"),
    "black and white": encode(PHOTO.convert("1")),
    "palette": encode(PHOTO.quantize(16), transparency=bytes(range(16))),
    "transparent": encode(TRANSPARENT),
    "broken EXIF data": encode(PHOTO, "JPEG", exif=b"Exif\x00\x00no TIFF header"),
    **{
        f"animated {kind}": encode(PHOTO, kind, save_all=True, append_images=[TRANSPARENT.convert("RGB").rotate(180)])
        for kind in ("GIF", "WEBP", "PNG", "AVIF", "TIFF")
    },
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_decodes_as_by_pillow(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(Image.open(io.BytesIO(FILES[name])).convert("RGB"))
        warnings.simplefilter("error")
        assert np.array_equal(decoded(FILES[name]), expected)


def test_16_bit_grey_is_scaled_not_clipped() -> None:
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    for kind in ("PNG", "TIFF", "PPM"):
        assert np.array_equal(decoded(encode(Image.fromarray(ramp), kind)), np.stack([ramp >> 8] * 3, axis=2))


def declaring(kind: str, width: int, height: int, mode: str = "RGB") -> bytes:
    """An image of 50 x 40 whose header says another size."""
    image = Image.fromarray(RANDOM.integers(1, 256, (40, 50, 3), dtype=np.uint8)).convert(mode)
    content = bytearray(encode(image, kind))
    if kind == "PNG":
        content[16:24] = struct.pack(">II", width, height)
        content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    else:
        [start] = struct.unpack_from("<I", content, 4)
        for place in range(start + 2, start + 2 + 12 * content[start], 12):
            if (tag := struct.unpack_from("<H", content, place)[0]) in (256, 257):
                content[place + 2 : place + 12] = struct.pack("<HII", 4, 1, width if tag == 256 else height)
    return bytes(content)


@pytest.mark.parametrize("size", [(50, 80), (50, 41), (100, 40)])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_an_image_that_promises_more_than_its_file_holds_is_quarantined(kind: str, size: tuple[int, int]) -> None:
    assert decoded(declaring(kind, 50, 40)).shape == (40, 50, 3)
    found = reason(run(DecodeImage(), declaring(kind, *size)))
    assert f"expected a whole {kind} image of {size[0]} x {size[1]}, found" in found


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_lines_that_a_png_file_lacks_are_noticed_in_every_mode_and_black_lines_are_lines(mode: str) -> None:
    assert reason(run(DecodeImage(), declaring("PNG", 50, 99, mode))).endswith("found 40 of its 99 lines")
    assert decoded(encode(Image.new(mode, (50, 40)))).shape == (40, 50, 3)


def test_a_decompression_bomb_is_refused_before_it_is_decoded() -> None:
    assert reason(run(DecodeImage(), declaring("PNG", 60_000, 60_000))) == (
        f"expected at most max_image_pixels = {MAX_IMAGE_PIXELS} pixels, found 3600000000 pixels"
    )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "JPEG2000"])
def test_no_truncation_yields_other_pixels(kind: str) -> None:
    encoded = encode(smooth(40, 40), kind)
    lengths = range(1, len(encoded), max(1, len(encoded) // 60))
    found = made(run(DecodeImage(), *(encoded[:length] for length in lengths), encoded))
    assert all(np.array_equal(row["image"], found[-1]["image"]) for row in found)
    assert 1 <= len(found) < len(lengths) / 2


def test_truncated_images_stay_errors_where_a_library_allows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    encoded = encode(RANDOM.integers(0, 256, (64, 64, 3), dtype=np.uint8), "JPEG")
    assert "image file is truncated" in reason(run(DecodeImage(), encoded[: len(encoded) // 2]))


def test_decoded_rows_pass_untouched() -> None:
    images = [smooth(4, 5), smooth(6, 7)]
    assert run(DecodeImage(), *images)["image"].equals(pa.chunked_array([tensors.to_arrow(images)]))


def test_fast_decoding_needs_files() -> None:
    with pytest.raises(ContractError, match="found decoded images"):
        run(ResizeImage(size=4, decode="fast"), smooth(8, 8))


@pytest.mark.parametrize("resample", ["bicubic", "bilinear"])
@pytest.mark.parametrize("shape", [(50, 80), (81, 50), (10, 10), (7, 300), (64, 33)])
def test_resizing_equals_the_processor_of_transformers(shape: tuple[int, int], resample: str) -> None:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    image = RANDOM.integers(0, 256, (*shape, 3), dtype=np.uint8)
    sizes: Any = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    filter_of = Image.Resampling[resample.upper()]
    processor = CLIPImageProcessorPil(**sizes, resample=filter_of, do_rescale=False, do_normalize=False)
    expected = processor(Image.fromarray(image), return_tensors="np")["pixel_values"][0]
    assert np.array_equal(resized(encode(image), size=32, resample=resample)[0], expected.transpose(1, 2, 0))


def test_a_height_and_width_are_covered_and_cropped() -> None:
    assert resized(encode(smooth(50, 80)), encode(smooth(80, 50)), size=(20, 40)).shape == (2, 20, 40, 3)
    plain = np.zeros((100, 100, 3), np.uint8)
    plain[25:75] = 255
    assert (resized(encode(plain), size=(20, 40), resample="box")[0] == 255).all()  # half of the height remains


def test_a_long_strip_is_cropped_while_it_is_scaled() -> None:
    strip = np.full((1, 3_000_000, 3), 200, np.uint8)  # 2,400,000,000 pixels wide at a height of 800
    assert (tensors.to_numpy(run(ResizeImage(size=800), strip)["image"])[0] == 200).all()


def test_a_row_that_is_no_rgb_image_fails_alone() -> None:
    block = run(ResizeImage(size=4), smooth(8, 8), np.zeros((8, 8), np.uint8), np.zeros((8, 8, 3), np.float32))
    assert list(reasons(block)) == ["file1", "file2"]
    assert "found uint8 8 x 8" in reasons(block)["file1"]
    assert "found float32 8 x 8 x 3" in reasons(block)["file2"]


XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description tiff:Orientation="6" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"/></rdf:RDF></x:xmpmeta>'
)


@pytest.mark.parametrize("name", [*sorted(FILES.keys() - {"black and white"}), "large", "turned by XMP"])
def test_fast_decoding_shows_nearly_the_same_picture(name: str) -> None:
    turned = encode(smooth(300, 480), "JPEG", quality=95, xmp=XMP.encode())
    file = {**FILES, "large": encode(smooth(300, 480), "JPEG", quality=95), "turned by XMP": turned}[name]
    fast, exact = (resized(file, size=(96, 64), decode=how) for how in ("fast", "exact"))
    assert np.abs(fast - exact).mean() < 3


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_is_cut_off_anywhere_fails_alike_however_it_is_decoded(progressive: bool) -> None:
    whole = encode(RANDOM.integers(0, 256, (120, 160, 3), dtype=np.uint8), "JPEG", progressive=progressive)
    files = [whole[:at] for at in range(4, len(whole), max(len(whole) // 60, 1))] + [whole[:-1], whole[:-2], whole[:-3]]
    exact, fast = (list(reasons(run(ResizeImage(size=32, decode=how), *files))) for how in ("exact", "fast"))
    assert fast == exact
    assert len(fast) >= len(files) - 3


def test_a_jpeg_is_scaled_while_it_is_decoded_but_its_pixels_are_counted_before() -> None:
    encoded = encode(smooth(1600, 2400), "JPEG")
    targets = {200: (200, 300), 201: (400, 600), 500: (800, 1200), 801: (1600, 2400), 1600: (1600, 2400)}
    for edge, shape in targets.items():  # in halves alone, which are quick
        assert decode_scaled(pa.py_buffer(encoded), edge, edge, MAX_IMAGE_PIXELS).shape == (*shape, 3)
    step = ResizeImage(size=32, decode="fast", max_image_pixels=99)
    assert "max_image_pixels = 99 pixels" in reason(run(step, encoded))
