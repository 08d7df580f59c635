"""The steps that decode files: what they make of a damaged one, or the reason for which it fails.

Sizes that a file declares for itself are limited as a job limits them: `max_image_pixels`, `max_seconds`, `max_frames`.
"""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.preprocess.steps.split_text import SplitText
from tests.fuzz.mutations import Sample
from tests.fuzz.targets import READ, REFUSED, Target, assert_own_words
from tests.tasks.preprocess import pdfs, sounds, videos

MOST_PIXELS = 1_000_000
HEIGHT, WIDTH = 12, 16
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def step_target(
    step: PreprocessStep, column: str, samples: Callable[[], tuple[Sample, ...]], is_text: bool = False
) -> Callable[[Path], Target]:
    def made(_: Path) -> Target:
        work = step.build()

        def run(sample: Sample) -> str:
            value = sample.content.decode(errors="replace") if is_text else sample.content
            kind = pa.string() if is_text else pa.large_binary()
            table = pa.table({"row_id": ["0"], "uri": ["0"], column: pa.array([value], kind)})
            outcome = work(table)
            for error in outcome.failed.values():
                assert isinstance(error, RowError)
                assert_own_words(str(error))
            if outcome.failed:
                return REFUSED
            assert outcome.made_of is not None or all(len(values) == 1 for values in outcome.columns.values())
            return READ

        return Target(samples(), run)

    return made


def image(kind: str, mode: str = "RGB", **settings: Any) -> bytes:
    file = io.BytesIO()
    ramp = np.arange(HEIGHT * WIDTH * 3, dtype=np.uint8).reshape(HEIGHT, WIDTH, 3)
    Image.fromarray(ramp).convert(mode).save(file, kind, **settings)
    return file.getvalue()


def with_png_sums(content: bytes) -> bytes:
    """The PNG file with right check sums in all chunks that are there."""
    found, place = bytearray(content), len(SIGNATURE)
    while place + 12 <= len(found):
        (size,) = struct.unpack_from(">I", found, place)
        stop = place + 8 + size
        if stop + 4 > len(found):
            break
        struct.pack_into(">I", found, stop, zlib.crc32(found[place + 4 : stop]))
        place = stop + 4
    return bytes(found)


TURNED = Image.Exif()
TURNED[0x0112] = 6


def images() -> tuple[Sample, ...]:
    import pillow_heif

    pillow_heif.register_heif_opener()
    summed = [image("PNG", "RGBA"), image("PNG", "P", transparency=0), image("PNG", "I;16")]
    frames = [Image.new("P", (WIDTH, HEIGHT), number) for number in (1, 2)]
    pixels = b"\xfe\x01\x02\x03\xc6" + bytes(7) + b"\x01"
    return (
        *jpegs(),
        *(Sample(f"sums-{number}.png", content, with_png_sums) for number, content in enumerate(summed)),
        Sample("a.png", image("PNG", exif=TURNED)),
        Sample("a.gif", image("GIF", "P", save_all=True, append_images=frames)),
        Sample("palette.bmp", image("BMP", "P")),
        Sample("a.webp", image("WEBP", exif=TURNED)),
        Sample("whole.webp", image("WEBP", "RGBA", lossless=True)),
        *(Sample(f"{packing}.tif", image("TIFF", compression=packing)) for packing in ("raw", "tiff_lzw", "jpeg")),
        Sample("deflate.tif", image("TIFF", "LA", compression="tiff_adobe_deflate")),
        Sample("fax.tif", image("TIFF", "1", compression="group4")),
        Sample("a.pbm", image("PPM", "1")),
        Sample("text.pgm", b"P2\n3 2\n255\n0 1 2 3 4 5"),
        *(Sample(f"a.{kind}", image(kind)) for kind in ("BMP", "PPM", "JPEG2000", "AVIF", "HEIF", "ICO")),
        Sample("a.qoi", b"qoif" + struct.pack(">IIBB", 4, 2, 3, 0) + pixels),
    )


def jpegs() -> tuple[Sample, ...]:
    return (
        Sample("a.jpg", image("JPEG", exif=TURNED)),
        Sample("steps.jpg", image("JPEG", progressive=True)),
        Sample("cmyk.jpg", image("JPEG", "CMYK")),
        Sample("grey.jpg", image("JPEG", "L", quality=30)),
        Sample("restarts.jpg", image("JPEG", restart_marker_blocks=1)),
    )


def audio() -> tuple[Sample, ...]:
    both = np.stack([sounds.tone(0.05, 8_000)] * 2, axis=1)
    codecs = (
        *(("libmp3lame", "mp3"), ("flac", "flac"), ("aac", "mp4"), ("aac", "adts"), ("libopus", "ogg")),
        *(("libmp3lame", "asf"), ("pcm_s16be", "aiff"), ("pcm_s16be", "au"), ("pcm_s16be", "caf"), ("alac", "caf")),
        *(("pcm_s16le", "w64"), ("adpcm_ms", "wav"), ("pcm_mulaw", "wav"), ("libopus", "matroska"), ("mp2", "mp2")),
    )
    made = (Sample(f"{codec}.{kind}", sounds.compressed(codec, kind, 0.1)) for codec, kind in codecs)
    return (Sample("a.wav", sounds.wav(both, 8_000)), *made)


def video() -> tuple[Sample, ...]:
    kinds = (
        *(("mp4", "mpeg4"), ("matroska", "mpeg4"), ("avi", "mpeg4"), ("mpegts", "mpeg2video"), ("flv", "flv")),
        *(("webm", "libvpx"), ("webm", "libvpx-vp9"), ("mp4", "libx264"), ("mp4", "libx265"), ("mp4", "libsvtav1")),
        *(("asf", "wmv2"), ("matroska", "ffv1")),
    )
    return tuple(Sample(f"{codec}.{kind}", videos.video(4, kind, codec, 16, 32)) for kind, codec in kinds)


def documents() -> tuple[Sample, ...]:
    field = b"/FT /Tx /T (name) /V (value)"
    stream = zlib.compress(b"BT /F1 12 Tf 50 700 Td (packed) Tj ET")
    filtered = pdfs.WHOLE.replace(b"/Length", b"/Filter /FlateDecode /Length", 1).replace(b"BT", stream, 1)
    return (
        Sample("a.pdf", pdfs.WHOLE),
        Sample("form.pdf", pdfs.pdf([["one"], ["two"]], fields=[field])),
        Sample("packed.pdf", filtered),
        Sample("scanned.pdf", pdfs.pdf([[], ["one"]], drawn=pdfs.PIXEL)),
        Sample("locked.pdf", pdfs.pdf([["Secret"]], trailer=pdfs.LOCKED)),
    )


def texts() -> tuple[Sample, ...]:
    return (
        Sample("words.txt", b"a few words of a text, and more of them\n\n  at its end " * 3),
        Sample("long.txt", "grüße".encode() * 20),
        Sample("blanks.txt", b" \t\n\xe2\x80\x83 a \n"),
    )


TARGETS: dict[str, Callable[[Path], Target]] = {
    "decode_image": step_target(DecodeImage(max_image_pixels=MOST_PIXELS), "image", images),
    "resize_image": step_target(ResizeImage(size=8, max_image_pixels=MOST_PIXELS), "image", images),
    "resize_image-fast": step_target(
        ResizeImage(size=(4, 6), decode="fast", max_image_pixels=MOST_PIXELS), "image", jpegs
    ),
    "decode_audio": step_target(DecodeAudio(max_seconds=60), "audio", audio),
    "decode_audio-chunks": step_target(
        DecodeAudio(max_seconds=60, chunk_seconds=0.03, overlap_seconds=0.01, sampling_rate=8_000), "audio", audio
    ),
    "sample_frames": step_target(
        SampleFrames(every_seconds=0.1, max_frames=100, max_image_pixels=MOST_PIXELS), "video", video
    ),
    "sample_frames-small": step_target(
        SampleFrames(frames_per_second=5, longest_side=8, max_image_pixels=MOST_PIXELS), "video", video
    ),
    "pdf_text": step_target(PdfText(), "pdf", documents),
    "split_text": step_target(SplitText(size=10, overlap=4), "text", texts, is_text=True),
}
