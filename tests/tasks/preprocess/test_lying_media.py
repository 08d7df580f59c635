"""Files whose headers lie, as the first of a block and as the last: each costs itself, or gives what there is.

A case has words of the reason. No words: the decoder takes what there is, and loses none of it.
"""

import struct
import time

import pyarrow as pa
import pytest

from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.rows import apply, blocks
from tests.tasks.blocks import source_block
from tests.tasks.preprocess import pdfs, sounds, videos

SOUND, PDF = sounds.WHOLE, pdfs.WHOLE
FILM = videos.video(20, "mp4", "mpeg4")
MOST = struct.pack(">I", 2**31 - 1)


def put(content: bytes, place: int, instead: bytes) -> bytes:
    return content[:place] + instead + content[place + len(instead) :]


def in_box(name: bytes, offset: int, instead: bytes) -> bytes:
    """The film with other bytes so far behind the name of a box."""
    return put(FILM, FILM.index(name) + offset, instead)


def audio() -> dict[str, tuple[bytes, str]]:
    return {
        "size": (put(SOUND, 4, struct.pack("<I", 10**9)), "found 32044 bytes of 1000000008: it is cut off"),
        "size-of-samples": (put(SOUND, 40, struct.pack("<I", 10**9)), ""),
        "channels": (put(SOUND, 22, struct.pack("<H", 60_000)), "do not decode: Invalid argument"),
        "no-channels": (put(SOUND, 22, struct.pack("<H", 0)), "do not decode: Invalid argument"),
        "rate": (put(SOUND, 24, struct.pack("<I", 2**31 - 1)), "found one of 2,147,483,647"),
        "bits": (put(SOUND, 34, struct.pack("<H", 65)), "do not decode: Decoder not found"),
        "codec": (put(SOUND, 20, struct.pack("<H", 0x55)), "do not decode: Invalid data"),
    }


def video() -> dict[str, tuple[bytes, str]]:
    return {
        "count-of-frames": (in_box(b"stsz", 12, MOST), "do not decode: Invalid data"),
        "size-of-a-frame": (in_box(b"stsz", 16, struct.pack(">I", 2**30)), "found one without a single frame"),
        "place-of-frames": (in_box(b"stco", 12, MOST), "found one without a single frame"),
        "duration": (in_box(b"mdhd", 20, MOST), ""),
        "width-and-height": (in_box(b"mp4v", 28, struct.pack(">HH", 60_000, 60_000)), ""),
        "codec": (FILM.replace(b"mp4v", b"avc1"), ""),
    }


def pdf() -> dict[str, tuple[bytes, str]]:
    return {
        "count-of-pages": (PDF.replace(b"/Count 3", b"/Count 999999999"), ""),
        "length-of-a-page": (PDF.replace(b"/Length ", b"/Length 9999"), ""),
        "pages-of-themselves": (PDF.replace(b"/Kids [4 0 R", b"/Kids [2 0 R"), "unreadable page 3 of 3"),
        "place-of-the-table": (PDF[: PDF.rindex(b"startxref")] + b"startxref\n99999999\n%%EOF\n", ""),
        "count-of-objects": (PDF.replace(b"/Size ", b"/Size 99999999"), ""),
    }


STEPS: dict[str, tuple[PreprocessStep, bytes, dict[str, tuple[bytes, str]]]] = {
    "audio": (DecodeAudio(max_seconds=60), SOUND, audio()),
    "video": (SampleFrames(every_seconds=0.5, max_frames=50, max_image_pixels=10**6), FILM, video()),
    "pdf": (PdfText(), PDF, pdf()),
}


@pytest.mark.parametrize("place", [0, 2], ids=["first", "behind"])
@pytest.mark.parametrize(("column", "name"), [(column, name) for column in STEPS for name in STEPS[column][2]])
def test_a_file_whose_header_lies_costs_itself_or_gives_what_there_is(column: str, name: str, place: int) -> None:
    step, whole, cases = STEPS[column]
    content, words = cases[name]
    assert content != whole
    files = [whole] * 3
    files[place] = content
    names = ["0", "1", "2"]
    block = source_block(0, 0, pa.table({"row_id": names, "uri": names, column: pa.array(files, pa.large_binary())}))
    began = time.process_time()
    done = apply.apply(block, "preprocess", step.build())
    assert time.process_time() - began < 5
    states = [blocks.LIVE] * 3
    states[place] = blocks.QUARANTINED if words else blocks.LIVE
    assert done["__state"].to_pylist() == states
    assert words in (done["__error_message"][place].as_py() or "")
    rows = {row["row_id"].partition("#")[0]: row for row in blocks.live_rows(done)[0].to_pylist()}
    assert len(rows) == (2 if words else 3)
