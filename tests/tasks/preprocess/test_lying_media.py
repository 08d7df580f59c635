"""Files whose headers lie, as the first of a block and as the last: each costs itself, or gives what there is."""

import time

import pyarrow as pa
import pytest

from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.rows import apply, blocks
from tests.tasks.blocks import source_block
from tests.tasks.preprocess import lying

STEPS: dict[str, tuple[PreprocessStep, bytes, dict[str, tuple[bytes, str]]]] = {
    "audio": (DecodeAudio(max_seconds=60), lying.SOUND, lying.audio()),
    "video": (SampleFrames(every_seconds=0.5, max_frames=50, max_image_pixels=10**6), lying.FILM, lying.video()),
    "pdf": (PdfText(), lying.PDF, lying.pdf()),
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
