"""Audio files to arrays: codecs, channels, rates and chunks beyond the promises of all steps."""

from pathlib import Path

import numpy as np
import pytest

from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from tests.contracts.steps.adapter import Row, made_of_files, on_files, reasons
from tests.tasks.preprocess.sounds import PLAYLIST, WHOLE, aiff_of_gsm, compressed, plain, tone, wav


def decoded(*contents: bytes, **settings: object) -> list[Row]:
    return made_of_files(DecodeAudio(**settings), *contents)


def titled() -> bytes:
    """A sound whose title is no UTF-8."""
    title = b"INFOINAM" + (6).to_bytes(4, "little") + "gr\xfc\xdfe".encode("latin-1") + b"\0"
    listed = WHOLE[12:] + b"LIST" + len(title).to_bytes(4, "little") + title
    return b"RIFF" + (4 + len(listed)).to_bytes(4, "little") + b"WAVE" + listed


@pytest.mark.parametrize(
    "content",
    [compressed("alac", "caf", seconds=1.0), aiff_of_gsm(100), titled()],
    ids=["the last packet of ALAC in CAF", "GSM, of which FFmpeg expects 160 times as much", "a title in Latin-1"],
)
def test_a_whole_second_is_read_into_a_row_that_keeps_its_id(content: bytes) -> None:
    [row] = decoded(content)
    assert row["audio"].shape == (1, 16_000)
    assert (row["row_id"], row["sampling_rate"], row["start_seconds"], row["end_seconds"]) == ("file0", 16_000, 0, 1)


def test_channels_are_mixed_and_rates_converted() -> None:
    [row] = decoded(wav(np.stack([tone(1.0, 8_000), np.zeros(8_000, np.float32)], axis=1), 8_000))
    assert row["audio"].shape == (1, 16_000)
    np.testing.assert_allclose(row["audio"][0, 500:-500], tone(1.0)[500:-500] / 2, atol=2e-3)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 16])
def test_any_number_of_channels_is_mixed(count: int) -> None:
    channels = np.stack([tone(0.1, hertz=100.0 * (number + 1)) / count for number in range(count)], axis=1)
    [row] = decoded(wav(channels))
    np.testing.assert_allclose(row["audio"][0], channels.mean(axis=1), atol=1e-4)


def test_chunks_are_the_file_in_pieces_with_their_seconds() -> None:
    samples = tone(10.0, hertz=1.3)
    found = decoded(wav(samples), wav(tone(0.5)), wav(tone(5.5)), chunk_seconds=3, overlap_seconds=0.5)
    spans = [(0, 3), (2.5, 5.5), (5, 8), (7.5, 10)]
    names = [*(f"file0#{number}" for number in range(4)), "file1#0", "file2#0", "file2#1"]
    assert [row["row_id"] for row in found] == names
    assert [(row["start_seconds"], row["end_seconds"]) for row in found] == [*spans, (0, 0.5), (0, 3), (2.5, 5.5)]
    for row, (start, end) in zip(found, spans, strict=False):
        np.testing.assert_array_equal(row["audio"][0], samples[int(start * 16_000) : int(end * 16_000)])


def test_no_file_sends_the_decoder_to_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.wav").write_bytes(WHOLE)
    monkeypatch.chdir(tmp_path)
    assert list(reasons(on_files(DecodeAudio(), PLAYLIST % b"secret.wav", WHOLE))) == ["file0"]


def assert_plain(contents: list[bytes]) -> None:
    for row, content in zip(decoded(*contents), contents, strict=True):
        np.testing.assert_array_equal(row["audio"], plain(content))


def test_compressed_files_are_what_the_plain_library_gives() -> None:
    codecs = (("libmp3lame", "mp3"), ("flac", "flac"), ("aac", "mp4"), ("libopus", "ogg"))
    assert_plain([compressed(*codec, rate=48_000) for codec in codecs])


def test_spoken_digits_are_what_the_plain_library_gives(shared_data: Path) -> None:
    digits = [path.read_bytes() for path in sorted((shared_data / "spoken-digits").glob("*.wav"))]
    assert len(digits) > 0
    assert_plain(digits)
