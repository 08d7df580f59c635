"""decode_image and resize_image: what comes out is what Pillow shows, and a broken image costs its own row."""

import io
import struct
import warnings
import zlib

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFile
from pydantic import ValidationError

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.images.decode import MAX_IMAGE_PIXELS, allow_pixels
from overnight.tasks.preprocess.images.scaled_jpeg import decode_scaled
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.rows import apply, blocks, rebatch, tensors
from tests.tasks.blocks import source_block

BINARY = pa.large_binary()
RANDOM = np.random.default_rng(7)


def smooth(height: int, width: int) -> np.ndarray:
    coarse = Image.fromarray(RANDOM.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


def encode(image: np.ndarray | Image.Image, kind: str = "PNG", **settings) -> bytes:
    buffer = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(buffer, kind, **settings)
    return buffer.getvalue()


def block_of(values: list, kind: pa.DataType | None = BINARY) -> pa.Table:
    column = pa.array(values, kind) if kind else tensors.to_arrow(values)
    names = [f"{i}.png" for i in range(len(values))]
    return source_block(0, 0, pa.table({"row_id": names, "image": column}))


def decode(*encoded: bytes | None, **settings) -> pa.Table:
    return apply.apply(block_of(list(encoded)), "preprocess", DecodeImage(**settings).build())


def decoded(encoded: bytes) -> np.ndarray:
    block = decode(encoded)
    assert block["__error_message"].to_pylist() == [None]
    return tensors.to_numpy(block["image"])[0]


def reason(block: pa.Table, row: int = 0) -> str:
    assert block["__state"][row].as_py() == blocks.QUARANTINED
    return block["__error_message"][row].as_py()


def test_images_of_one_size_come_out_stacked_and_equal_to_pillows():
    images = [smooth(20, 30) for _ in range(3)]
    block = decode(*[encode(image) for image in images])
    result = tensors.to_numpy(block["image"])
    assert result.dtype == np.uint8
    assert np.array_equal(result, np.stack(images))


def test_images_of_several_sizes_keep_theirs():
    images = [smooth(20, 30), smooth(5, 6), smooth(20, 30)]
    result = tensors.to_numpy(decode(*[encode(image) for image in images])["image"])
    assert [image.shape for image in result] == [(20, 30, 3), (5, 6, 3), (20, 30, 3)]
    assert all(np.array_equal(a, b) for a, b in zip(result, images, strict=True))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "BMP", "TIFF", "PPM", "GIF", "AVIF", "JPEG2000"])
def test_every_listed_format_decodes_as_pillow_does(kind):
    encoded = encode(smooth(24, 32), kind)
    assert np.array_equal(decoded(encoded), np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(kind, orientation):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(smooth(16, 32), kind, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).convert("RGB")
    assert np.array_equal(decoded(encoded), np.asarray(expected))


def test_unreadable_exif_data_do_not_cost_the_image():
    image = smooth(16, 32)
    exif = b"Exif\x00\x00no TIFF header"
    assert decoded(encode(image, "JPEG", exif=exif)).shape == (16, 32, 3)


def test_the_first_frame_of_an_animation_is_taken():
    first, second = smooth(8, 8), smooth(8, 8)
    encoded = encode(
        Image.fromarray(first), "WEBP", save_all=True, append_images=[Image.fromarray(second)], lossless=True
    )
    assert np.array_equal(decoded(encoded), first)


def test_cmyk_grey_palette_and_alpha_become_rgb_as_pillow_converts_them():
    image = Image.fromarray(smooth(16, 16))
    with_alpha = image.convert("RGBA")
    with_alpha.putalpha(0)
    palette = image.quantize(16)
    for encoded in (
        encode(image.convert("CMYK"), "JPEG"),
        encode(image.convert("L")),
        encode(image.convert("1")),
        encode(palette, transparency=bytes(range(16))),
        encode(with_alpha),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
            warnings.simplefilter("error")
            assert np.array_equal(decoded(encoded), expected)
    assert np.array_equal(decoded(encode(with_alpha)), np.asarray(image))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_scaled_not_clipped(kind):
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    result = decoded(encode(Image.fromarray(ramp), kind))
    assert np.array_equal(result[..., 0], (ramp >> 8).astype(np.uint8))
    assert np.array_equal(result[..., 0], result[..., 2])


def broken() -> dict[str, tuple[bytes | None, str]]:
    """Kinds of broken image, with a part of the reason that each must give."""
    image = smooth(64, 64)
    jpeg, png = encode(image, "JPEG"), encode(image)
    flipped = bytearray(png)
    flipped[len(png) // 2] ^= 0xFF
    huge = encode(Image.new("L", (5000, 5000)))
    headless = bytearray(png)
    headless[13] ^= 0xFF
    return {
        "no value": (None, "found null"),
        "empty": (b"", "the file is empty (0 bytes)"),
        "truncated JPEG": (jpeg[: len(jpeg) * 2 // 3], "expected a whole JPEG image of 64 x 64"),
        "truncated PNG": (png[: len(png) * 2 // 3], "expected a whole PNG image of 64 x 64"),
        "only the header": (jpeg[:100], "found 100 bytes"),
        "text": (b"<html>404 Not Found</html>", "begin with b'<html>404 Not Fo'"),
        "zeros": (bytes(1000), "expected an image"),
        "a document": (b"%PDF-1.7\n%%EOF\n", "begin with b'%PDF-1.7"),
        "a broken header": (bytes(headless), "expected a whole PNG image, found"),
        "flipped bits": (bytes(flipped), "expected a whole PNG"),
        "too large": (huge, "found 5000 x 5000 = 25000000"),
        "32-bit floats": (encode(Image.new("F", (4, 4)), "TIFF"), "expected 8 or 16 bits per channel"),
    }


@pytest.mark.parametrize("name", broken())
def test_a_broken_image_costs_only_its_row(name):
    data, expected = broken()[name]
    good = smooth(8, 8)
    block = decode(encode(good), data, encode(good), max_image_pixels=1_000_000)
    assert block["__state"].to_pylist() == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert expected in reason(block, 1)
    assert np.array_equal(tensors.to_numpy(block["image"])[2], good)


def declaring(kind: str, width: int, height: int, mode: str = "RGB") -> bytes:
    """An image of 50 x 40 whose header says another size."""
    content = bytearray(
        encode(Image.fromarray(RANDOM.integers(1, 256, (40, 50, 3), dtype=np.uint8)).convert(mode), kind)
    )
    if kind == "PNG":
        content[16:24] = struct.pack(">II", width, height)
        content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    elif kind == "BMP":
        content[18:26] = struct.pack("<ii", width, height)
    elif kind == "PPM":
        content = content.replace(b"50 40", b"%d %d" % (width, height))
    elif kind == "GIF":
        frame = content.index(b",\0\0\0\0")
        content[frame + 5 : frame + 9] = struct.pack("<HH", width, height)
    elif kind == "TIFF":
        [start] = struct.unpack_from("<I", content, 4)
        for place in range(start + 2, start + 2 + 12 * content[start], 12):
            if (tag := struct.unpack_from("<H", content, place)[0]) in (256, 257):
                content[place + 2 : place + 12] = struct.pack("<HII", 4, 1, width if tag == 256 else height)
    return bytes(content)


@pytest.mark.parametrize("size", [(50, 80), (50, 41), (100, 40)])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "GIF", "TIFF"])
def test_an_image_that_promises_more_than_its_file_holds_is_quarantined(kind: str, size: tuple[int, int]) -> None:
    assert decoded(declaring(kind, 50, 40)).shape == (40, 50, 3)
    assert f"expected a whole {kind} image of {size[0]} x {size[1]}, found" in reason(decode(declaring(kind, *size)))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_lines_that_a_png_file_lacks_are_noticed_in_every_mode_and_black_lines_are_lines(mode: str) -> None:
    assert reason(decode(declaring("PNG", 50, 99, mode))).endswith("found 40 of its 99 lines")
    image = Image.new(mode, (50, 40))
    assert decoded(encode(image)).shape == (40, 50, 3)


def test_a_decompression_bomb_is_refused_before_it_is_decoded():
    header = encode(Image.new("L", (1, 1)))
    bomb = bytearray(header)
    bomb[16:24] = (60000).to_bytes(4, "big") * 2
    bomb[29:33] = zlib.crc32(bomb[12:29]).to_bytes(4, "big")
    told = reason(decode(bytes(bomb)))
    assert told == f"expected at most max_image_pixels = {MAX_IMAGE_PIXELS} pixels, found 3600000000 pixels"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "JPEG2000"])
def test_no_truncation_yields_other_pixels(kind):
    encoded = encode(smooth(40, 40), kind)
    whole = decoded(encoded)
    block = decode(*[encoded[:length] for length in range(1, len(encoded), max(1, len(encoded) // 60))], encoded)
    for state, image in zip(block["__state"].to_pylist(), tensors.to_numpy(block["image"]), strict=True):
        assert state == blocks.QUARANTINED or np.array_equal(image, whole)


def test_truncated_images_stay_errors_where_a_library_allows_them(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    encoded = encode(RANDOM.integers(0, 256, (64, 64, 3), dtype=np.uint8), "JPEG")
    assert "image file is truncated" in reason(decode(encoded[: len(encoded) // 2]))


def test_a_block_in_which_all_rows_fail_joins_one_in_which_none_does():
    joined = rebatch.joined([decode(b"", b"x"), decode(encode(smooth(4, 5), "PNG"))])
    assert joined["__state"].to_pylist() == [blocks.QUARANTINED, blocks.QUARANTINED, blocks.LIVE]
    assert joined.schema.field("image").type == tensors.TENSOR


def test_decoded_rows_pass_untouched():
    block = block_of([smooth(4, 5), smooth(6, 7)], None)
    again = apply.apply(block, "preprocess", DecodeImage().build())
    assert again["image"].equals(block["image"])


FILES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.mark.parametrize("step", [DecodeImage(), ResizeImage(size=16), ResizeImage(size=16, decode="fast")])
def test_structs_of_bytes_and_path_are_files(step: DecodeImage | ResizeImage) -> None:
    files = [encode(smooth(20, 30)), None, b"", encode(smooth(16, 16), "JPEG")]
    structs = [{"bytes": file, "path": "a.png"} for file in files] + [None]
    found = apply.apply(block_of(structs, FILES), "preprocess", step.build())
    expected = apply.apply(block_of([*files, None]), "preprocess", step.build())
    for name in ("image", "__state", "__error_message"):
        assert found[name].to_pylist() == expected[name].to_pylist()
    assert found["__state"].to_pylist().count(blocks.LIVE) == 2


def test_a_missing_or_unfit_column_is_the_settings_fault_not_the_rows():
    with pytest.raises(ContractError, match=r"expected a column 'photo', found row_id, image"):
        decode(b"", column="photo")
    with pytest.raises(ContractError, match=r"\(binary, or a struct with bytes\) in column 'image', found string"):
        apply.apply(block_of(["a"], pa.string()), "preprocess", DecodeImage().build())
    with pytest.raises(ContractError, match=r"decoded or as files, in column 'image', found string"):
        apply.apply(block_of(["a"], pa.string()), "preprocess", ResizeImage(size=4).build())
    with pytest.raises(ContractError, match=r"decode: fast expects image files .*, found decoded images"):
        apply.apply(block_of([smooth(8, 8)], None), "preprocess", ResizeImage(size=4, decode="fast").build())


def resize(*images: np.ndarray, **settings) -> np.ndarray:
    block = apply.apply(block_of(list(images), None), "preprocess", ResizeImage(**settings).build())
    assert block["__error_message"].null_count == len(block)
    return tensors.to_numpy(block["image"])


@pytest.mark.parametrize("shape", [(50, 80), (81, 50), (10, 10), (7, 300), (224, 224), (64, 33)])
@pytest.mark.parametrize("resample", ["bicubic", "bilinear"])
def test_resizing_equals_the_processor_of_transformers(shape, resample):
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    image = RANDOM.integers(0, 256, (*shape, 3), dtype=np.uint8)
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 32},
        crop_size={"height": 32, "width": 32},
        resample=Image.Resampling[resample.upper()],
        do_rescale=False,
        do_normalize=False,
    )
    result = resize(image, size=32, resample=resample)
    expected = processor(Image.fromarray(image), return_tensors="np")["pixel_values"][0]
    assert np.array_equal(result[0], expected.transpose(1, 2, 0).astype(np.uint8))


def test_a_height_and_width_are_covered_and_cropped():
    result = resize(smooth(50, 80), smooth(80, 50), size=(20, 40))
    assert result.shape == (2, 20, 40, 3)
    plain = np.zeros((100, 100, 3), np.uint8)
    plain[25:75] = 255
    assert (resize(plain, size=(20, 40), resample="box")[0] == 255).all()  # half of the height remains


def test_a_long_strip_is_cropped_while_it_is_scaled():
    strip = np.full((1, 3_000_000, 3), 200, np.uint8)  # 2,400,000,000 pixels wide at a height of 800
    assert (resize(strip, size=800)[0] == 200).all()


def test_a_row_that_is_no_rgb_image_fails_alone():
    images = [smooth(8, 8), np.zeros((8, 8), np.uint8), np.zeros((8, 8, 3), np.float32)]
    block = apply.apply(block_of(images, None), "preprocess", ResizeImage(size=4).build())
    assert "found uint8 8 x 8" in reason(block, 1)
    assert "found float32 8 x 8 x 3" in reason(block, 2)
    assert block["__state"][0].as_py() == blocks.LIVE


def from_files(*encoded: bytes | None, **settings) -> pa.Table:
    return apply.apply(block_of(list(encoded)), "preprocess", ResizeImage(**settings).build())


def test_files_are_decoded_on_the_way_and_a_broken_one_fails_alone():
    files = [encode(smooth(50, 80)), b"", encode(smooth(40, 40), "JPEG"), encode(smooth(60, 60), "JPEG")[:-300]]
    for how in ("exact", "fast"):
        block = from_files(*files, size=32, decode=how)
        assert block["__state"].to_pylist() == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE, blocks.QUARANTINED]
        assert "the file is empty" in reason(block, 1)
        assert "expected a whole JPEG image of 60 x 60" in reason(block, 3)
    at_once = tensors.to_numpy(from_files(files[0], files[2], size=32)["image"])
    apart = apply.apply(decode(files[0], files[2]), "preprocess", ResizeImage(size=32).build())
    assert np.array_equal(at_once, tensors.to_numpy(apart["image"]))
    assert "max_image_pixels = 99 pixels" in reason(from_files(files[2], size=32, decode="fast", max_image_pixels=99))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("shape", [(300, 480), (480, 300), (40, 30)])
def test_fast_decoding_shows_the_same_picture(orientation, shape):
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encode(smooth(*shape), "JPEG", quality=95, exif=exif)
    fast, exact = (
        tensors.to_numpy(from_files(file, size=(64, 96), decode=how)["image"]).astype(int) for how in ("fast", "exact")
    )
    assert np.abs(fast - exact).mean() < 2
    assert fast.shape == (1, 64, 96, 3)


XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description tiff:Orientation="6" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"/></rdf:RDF></x:xmpmeta>'
)


def test_fast_decoding_turns_what_only_xmp_says_to_turn():
    file = encode(smooth(300, 480), "JPEG", quality=95, xmp=XMP.encode())
    fast, exact = (
        tensors.to_numpy(from_files(file, size=(96, 64), decode=how)["image"]).astype(int) for how in ("fast", "exact")
    )
    assert np.abs(fast - exact).mean() < 2


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_is_cut_off_anywhere_fails_alike_however_it_is_decoded(progressive):
    whole = encode(RANDOM.integers(0, 256, (120, 160, 3), dtype=np.uint8), "JPEG", progressive=progressive)
    files = [whole[:at] for at in range(4, len(whole), max(len(whole) // 60, 1))] + [whole[:-1], whole[:-2], whole[:-3]]
    states = {how: from_files(*files, size=32, decode=how)["__state"].to_pylist() for how in ("exact", "fast")}
    assert states["fast"] == states["exact"]
    assert states["fast"].count(blocks.QUARANTINED) >= len(files) - 3


def test_a_jpeg_is_scaled_while_it_is_decoded():
    def shape(height: int, width: int) -> tuple[int, ...]:
        encoded = pa.py_buffer(encode(smooth(1600, 2400), "JPEG"))
        return decode_scaled(encoded, height, width, MAX_IMAGE_PIXELS).shape

    assert shape(200, 200) == (200, 300, 3)
    assert shape(201, 201) == (400, 600, 3)
    assert shape(500, 500) == (800, 1200, 3)  # in halves alone, which are quick
    assert shape(801, 801) == shape(1600, 1600) == (1600, 2400, 3)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "AVIF", "HEIF", "CMYK", "grey"])
def test_fast_decoding_takes_every_format(kind):
    image = Image.fromarray(smooth(90, 120))
    file = {"CMYK": lambda: encode(image.convert("CMYK"), "JPEG"), "grey": lambda: encode(image.convert("L"), "JPEG")}
    allow_pixels(MAX_IMAGE_PIXELS)  # registers HEIF with Pillow, here to write one
    encoded = file.get(kind, lambda: encode(image, kind))()
    fast, exact = (
        tensors.to_numpy(from_files(encoded, size=48, decode=how)["image"]).astype(int) for how in ("fast", "exact")
    )
    assert np.abs(fast - exact).mean() < 3


def test_fast_decoding_changes_what_a_model_sees_by_little(shared_data):
    photos = [path.read_bytes() for path in sorted((shared_data / "photos").rglob("*.jpg"))]
    fast, exact = (tensors.to_numpy(from_files(*photos, size=224, decode=how)["image"]) for how in ("fast", "exact"))
    assert np.abs(fast.astype(int) - exact).mean() < 3  # of 255; the largest difference is in fine texture


@pytest.mark.parametrize(
    "settings",
    [
        *({"size": 0}, {"size": (4,)}, {"size": 4, "resample": "cubic"}, {"sise": 4}),
        {"size": 4, "decode": "fast", "resample": "box"},
    ],
)
def test_wrong_settings_fail_at_construction(settings):
    with pytest.raises(ValidationError):
        ResizeImage(**settings)
