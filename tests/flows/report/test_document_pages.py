"""A page of a document is drawn in a process of its own, whose end leaves the others without a picture."""

import io
import os
from pathlib import Path

import pytest
from PIL import Image

pypdfium2 = pytest.importorskip("pypdfium2")

from overnight.flows.report.document_pages import PIXELS, draw_pages  # noqa: E402


def document(width: int, height: int, pages: int) -> bytes:
    made = pypdfium2.PdfDocument.new()
    for _ in range(pages):
        made.new_page(width, height)
    buffer = io.BytesIO()
    made.save(buffer)
    return buffer.getvalue()


def test_a_page_is_a_small_picture_and_what_is_no_page_is_none() -> None:
    file = document(200, 100, 2)
    pictures = draw_pages([(file, 2), (b"no document", 1), (file, 3), (file, 1)])
    assert [bool(picture) for picture in pictures] == [True, False, False, True]
    assert Image.open(io.BytesIO(pictures[0])).size == (PIXELS, PIXELS // 2)


def test_a_process_that_dies_leaves_the_other_pages_without_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pypdfium2.py").write_text("import os\nos.abort()")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert draw_pages([(document(9, 9, 1), 1)] * 2) == [b"", b""]
