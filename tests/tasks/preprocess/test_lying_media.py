"""Files whose headers lie without harm: the decoder takes what there is, soon, and loses none of it.

The headers that cost their rows are among the broken files of `sounds.py`, `videos.py` and `pdfs.py`.
"""

import struct
import time

import pytest

from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from tests.contracts.steps.adapter import made_of_files
from tests.tasks.preprocess import pdfs, sounds, videos

SOUND, FILM, PDF = sounds.WHOLE, videos.video(20, "mp4", "mpeg4"), pdfs.WHOLE
STEPS: dict[str, PreprocessStep] = {
    "audio": DecodeAudio(max_seconds=60),
    "video": SampleFrames(every_seconds=0.5, max_frames=50, max_image_pixels=10**6),
    "pdf": PdfText(),
}
FILES = {
    "size of samples": ("audio", sounds.put(SOUND, 40, struct.pack("<I", 10**9)), 1),
    "duration": ("video", videos.in_box(FILM, b"mdhd", 20, struct.pack(">I", 2**31 - 1)), 4),
    "width and height": ("video", videos.in_box(FILM, b"mp4v", 28, struct.pack(">HH", 60_000, 60_000)), 4),
    "codec": ("video", FILM.replace(b"mp4v", b"avc1"), 4),
    "count of pages": ("pdf", PDF.replace(b"/Count 3", b"/Count 999999999"), 2),
    "length of a page": ("pdf", PDF.replace(b"/Length ", b"/Length 9999"), 2),
    "place of the table": ("pdf", PDF[: PDF.rindex(b"startxref")] + b"startxref\n99999999\n%%EOF\n", 2),
    "count of objects": ("pdf", PDF.replace(b"/Size ", b"/Size 99999999"), 2),
}


@pytest.mark.parametrize(("kind", "content", "rows"), FILES.values(), ids=FILES)
def test_a_file_whose_header_lies_gives_what_there_is(kind: str, content: bytes, rows: int) -> None:
    assert content not in (SOUND, FILM, PDF)
    began = time.process_time()
    found = made_of_files(STEPS[kind], content)
    assert time.process_time() - began < 5
    assert len(found) == rows
