"""A page or a frame is drawn in a process of its own, whose end leaves the others without a picture."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

pypdfium2 = pytest.importorskip("pypdfium2")

from overnight.flows.report.drawn_files import PAGE_PIXELS, Drawing, draw  # noqa: E402
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames  # noqa: E402


def document(width: int, height: int, pages: int) -> bytes:
    made = pypdfium2.PdfDocument.new()
    for _ in range(pages):
        made.new_page(width, height)
    buffer = io.BytesIO()
    made.save(buffer)
    return buffer.getvalue()


def test_a_page_is_a_small_picture_and_what_is_no_page_is_none() -> None:
    file = document(200, 100, 2)
    pictures = draw([Drawing(file, 2), Drawing(b"no document", 1), Drawing(file, 3), Drawing(file, 1)])
    assert [bool(picture) for picture in pictures] == [True, False, False, True]
    assert Image.open(io.BytesIO(pictures[0])).size == (PAGE_PIXELS, PAGE_PIXELS // 2)


def test_a_process_that_dies_leaves_the_other_pages_without_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pypdfium2.py").write_text("import os\nos.abort()")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert draw([Drawing(document(9, 9, 1), 1)] * 2) == [b"", b""]


def test_a_frame_is_drawn_as_the_step_selects_and_scales_it() -> None:
    videos = pytest.importorskip("tests.tasks.preprocess.videos")
    step = SampleFrames(every_seconds=1, longest_side=32)
    first, second = videos.video(25), videos.video(35)
    places = [(first, 20), (second, 30), (first, 0), (first, 5)]  # the frame 5 is not selected
    pictures = draw([Drawing(file, number, step) for file, number in places])
    assert [bool(picture) for picture in pictures] == [True, True, True, False]
    brightness = [Image.open(io.BytesIO(picture)).convert("L") for picture in pictures[:3]]
    assert [image.size for image in brightness] == [(32, 24)] * 3
    values = [image.getpixel((28, 20)) for image in brightness]
    assert values[2] < values[0] < values[1]  # a later frame is brighter


def test_the_process_of_pages_starts_without_the_libraries_of_steps() -> None:
    program = "import sys, overnight.flows.report.drawn_files; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_file_that_takes_too_long_leaves_no_picture() -> None:
    assert draw([Drawing(document(9, 9, 1), 1)], seconds=0.01) == [b""]
