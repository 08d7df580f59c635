"""Audio files to arrays, whole and in chunks."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.rows import apply, blocks, tensors
from tests.tasks.blocks import source_block
from tests.tasks.preprocess.sounds import PLAYLIST, WHOLE, aiff_of_gsm, broken, compressed, plain, tone, wav


def files(contents: dict[str, bytes], column: str = "audio") -> pa.Table:
    data = {"row_id": list(contents), column: pa.array(list(contents.values()), pa.large_binary())}
    return source_block(0, 0, pa.table(data))


def made(block: pa.Table) -> list[dict]:
    table, _ = blocks.live_rows(block)
    audio = tensors.to_numpy(table["audio"])
    return [{**row, "audio": one} for row, one in zip(table.drop_columns("audio").to_pylist(), audio, strict=True)]


def decoded(contents: dict[str, bytes], **settings) -> list[dict]:
    return made(apply.apply(files(contents), "preprocess", DecodeAudio(**settings).build()))


def test_structs_of_bytes_and_path_are_files_that_are_not_repeated_for_their_chunks() -> None:
    structs = pa.array([{"bytes": wav(tone(1.0)), "path": "a.wav"}, {"bytes": None, "path": "b.wav"}])
    block = source_block(0, 0, pa.table({"row_id": ["t#0", "t#1"], "sound": structs}))
    done = apply.apply(block, "preprocess", DecodeAudio(column="sound", chunk_seconds=0.5).build())
    assert [row["row_id"] for row in made(done)] == ["t#0.0", "t#0.1"]
    assert "sound" not in made(done)[0]
    assert "found null" in done["__error_message"][1].as_py()


def test_samples_come_out_as_they_went_in() -> None:
    samples = tone(1.0)
    (row,) = decoded({"a.wav": wav(samples)})
    assert (row["row_id"], row["sampling_rate"], row["start_seconds"], row["end_seconds"]) == (
        "a.wav",
        16_000,
        0.0,
        1.0,
    )
    assert row["audio"].dtype == np.float32
    np.testing.assert_array_equal(row["audio"], samples[None])


@pytest.mark.parametrize("codec", [("libmp3lame", "mp3"), ("flac", "flac"), ("aac", "mp4"), ("libopus", "ogg")])
def test_a_compressed_file_is_what_the_plain_library_gives(codec: tuple[str, str]) -> None:
    content = compressed(*codec, rate=48_000)
    (row,) = decoded({"a": content})
    np.testing.assert_array_equal(row["audio"], plain(content))


def test_the_last_packet_of_alac_in_caf_is_whole() -> None:
    (row,) = decoded({"a.caf": compressed("alac", "caf", seconds=1.0)})
    assert row["audio"].shape == (1, 16_000)


def test_seconds_that_ffmpeg_takes_for_160_times_as_many_refuse_no_file() -> None:
    (row,) = decoded({"a.aiff": aiff_of_gsm(100)})
    assert row["audio"].shape == (1, 16_000)


def test_channels_are_mixed_and_rates_converted() -> None:
    both = np.stack([tone(1.0, 8_000), np.zeros(8_000, np.float32)], axis=1)
    (row,) = decoded({"a.wav": wav(both, 8_000)})
    assert row["audio"].shape == (1, 16_000)
    inner = row["audio"][0, 500:-500]
    np.testing.assert_allclose(inner, tone(1.0)[500:-500] / 2, atol=2e-3)


def test_chunks_are_the_file_in_pieces_with_their_seconds() -> None:
    samples = tone(10.0, hertz=1.3)
    found = decoded(
        {"a.wav": wav(samples), "b.wav": wav(tone(0.5)), "c.wav": wav(tone(5.5))}, chunk_seconds=3, overlap_seconds=0.5
    )
    spans = [(0, 3), (2.5, 5.5), (5, 8), (7.5, 10)]
    names = [*(f"a.wav#{number}" for number in range(4)), "b.wav#0", "c.wav#0", "c.wav#1"]
    assert [row["row_id"] for row in found] == names
    assert [(row["start_seconds"], row["end_seconds"]) for row in found] == [*spans, (0, 0.5), (0, 3), (2.5, 5.5)]
    for row, (start, end) in zip(found, spans, strict=False):
        np.testing.assert_array_equal(row["audio"][0], samples[int(start * 16_000) : int(end * 16_000)])


@pytest.mark.parametrize("settings", [{}, {"chunk_seconds": 0.4}])
def test_each_broken_file_is_quarantined_alone_with_its_reason(settings: dict) -> None:
    bad = broken()
    block = files({"first": WHOLE, **{name: content for name, (content, _) in bad.items()}, "last": WHOLE})
    done = apply.apply(block, "preprocess", DecodeAudio(max_seconds=5, **settings).build())
    assert {row["row_id"].split("#")[0] for row in made(done)} == {"first", "last"}
    assert len(made(done)) == (6 if settings else 2)
    reasons = dict(zip(done["row_id"].to_pylist(), done["__error_message"].to_pylist(), strict=True))
    for name, (_, reason) in bad.items():
        assert re.search(reason, reasons[name]), reasons[name]
        assert reasons[name].startswith("decode_audio: expected an audio file")


def test_no_file_sends_the_decoder_to_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.wav").write_bytes(WHOLE)
    monkeypatch.chdir(tmp_path)
    block = files({"list": PLAYLIST % b"secret.wav", "good": WHOLE})
    done = apply.apply(block, "preprocess", DecodeAudio().build())
    assert done["__state"].to_pylist() == [blocks.QUARANTINED, blocks.LIVE]


def test_settings_that_fit_no_chunk_are_refused() -> None:
    with pytest.raises(ValidationError, match="at most half of chunk_seconds"):
        DecodeAudio(overlap_seconds=1)
    with pytest.raises(ValidationError, match="at most half of chunk_seconds"):
        DecodeAudio(chunk_seconds=3, overlap_seconds=2)


def test_spoken_digits_are_decoded_as_by_the_plain_library(shared_data: Path) -> None:
    contents = {path.name: path.read_bytes() for path in sorted((shared_data / "spoken-digits").glob("*.wav"))}
    found = decoded(contents)
    assert len(found) == len(contents) > 0
    for row in found:
        np.testing.assert_array_equal(row["audio"], plain(contents[row["row_id"]]))


@pytest.mark.parametrize("count", [1, 2, 8, 9, 16])
def test_any_number_of_channels_is_mixed(count: int) -> None:
    channels = np.stack([tone(0.1, hertz=100.0 * (number + 1)) / count for number in range(count)], axis=1)
    (row,) = decoded({"a.wav": wav(channels)})
    np.testing.assert_allclose(row["audio"][0], channels.mean(axis=1), atol=1e-4)


def test_a_title_that_is_no_utf8_costs_nothing() -> None:
    title = b"INFOINAM" + (6).to_bytes(4, "little") + "gr\xfc\xdfe".encode("latin-1") + b"\0"
    listed = WHOLE[12:] + b"LIST" + len(title).to_bytes(4, "little") + title
    content = b"RIFF" + (4 + len(listed)).to_bytes(4, "little") + b"WAVE" + listed
    (row,) = decoded({"a.wav": content})
    assert row["audio"].shape == (1, 16_000)


def test_a_sampling_rate_that_no_recording_has_is_refused_before_it_is_converted() -> None:
    content = WHOLE[:24] + (100_000_007).to_bytes(4, "little") + WHOLE[28:]
    done = apply.apply(files({"a.wav": content}), "preprocess", DecodeAudio().build())
    [reason] = done["__error_message"].to_pylist()
    assert "at most 3,000,000 samples a second, found one of 100,000,007" in reason
