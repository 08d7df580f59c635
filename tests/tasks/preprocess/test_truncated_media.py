"""Sound and video files that break off: what their own container says of their length or end decides."""

import re

import av
import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess import truncated_media
from overnight.tasks.preprocess.ffmpeg import opened
from tests.tasks.preprocess.sounds import compressed, tone, wav
from tests.tasks.preprocess.videos import video

FILES = {
    "wav": lambda: wav(tone(2.0)),
    "rf64": lambda: compressed("pcm_s16le", "wav", rf64="always"),
    "aiff": lambda: compressed("pcm_s16be", "aiff"),
    "au": lambda: compressed("pcm_s16be", "au"),
    "caf": lambda: compressed("pcm_s16be", "caf"),
    "w64": lambda: compressed("pcm_s16le", "w64"),
    "asf": lambda: compressed("libmp3lame", "asf"),
    "opus": lambda: compressed("libopus", "ogg"),
    "mp3": lambda: compressed("libmp3lame", "mp3"),
    "m4a": lambda: compressed("aac", "mp4"),
    "mp4": lambda: video(50),
    "mov": lambda: video(50, "mov"),
    "fragmented": lambda: video(50, is_live=True, movflags="frag_keyframe+empty_moov"),
    "mkv": lambda: video(50, "matroska"),
    "live-mkv": lambda: video(50, "matroska", is_live=True, live="1"),
    "avi": lambda: video(50, "avi"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_whole_until_it_breaks_off_anywhere(name: str) -> None:
    content = FILES[name]()
    assert truncated_media.what_is_missing(content) == ""
    for stop in (*range(64), *range(64, len(content), len(content) // 31)):
        truncated_media.what_is_missing(content[:stop])  # raises for no beginning
    kind = "video" if name in ("mp4", "mov", "fragmented", "mkv", "live-mkv", "avi") else "audio"
    for share in (0.3, 0.5, 0.97, 0.999):
        cut = content[: int(len(content) * share)]
        with pytest.raises(RowError) as caught, opened(av, cut, kind, "expected it"):
            pass
        assert re.fullmatch(r"expected it that is whole, found .* bytes.*: it is cut off", str(caught.value))
    if name in ("mp4", "mkv", "wav", "opus", "caf", "mp3"):
        assert truncated_media.what_is_missing(content + bytes(100)) == ""


@pytest.mark.parametrize("size", [0, 2**32 - 1])
def test_a_size_that_a_stream_did_not_know_says_nothing(size: int) -> None:
    whole = wav(tone(1.0))
    assert truncated_media.what_is_missing(whole[:4] + size.to_bytes(4, "little") + whole[8:-99]) == ""
    au = compressed("pcm_s16be", "au")
    assert truncated_media.what_is_missing(au[:8] + size.to_bytes(4, "big") + au[12:-99]) == ""


def test_an_mp3_whose_encoder_counts_its_tags_too_is_whole() -> None:
    tag = b"ID3\x04\0\0\0\0\x02\x00" + bytes(256)
    mp3 = FILES["mp3"]()
    frames = mp3[mp3.index(b"\xff", 10) :]
    place = frames.index(b"Lavf")
    other = tag + frames[:place] + b"mine" + frames[place + 4 :]
    size = other.index(b"Info" if b"Info" in other else b"Xing") + 12
    counted = other[:size] + len(other).to_bytes(4, "big") + other[size + 4 :]
    for whole, cut in ((tag + frames, 1), (counted, 300)):
        assert truncated_media.what_is_missing(whole) == ""
        assert truncated_media.what_is_missing(whole[:-cut]) == f"found {len(whole) - cut} bytes of {len(whole)}"


def frames_of(codec: str, rate: int) -> bytes:
    """MPEG audio without a header that counts its frames."""
    content = compressed(codec, codec.removeprefix("lib").replace("mp3lame", "mp3"), 2.0, rate)
    start = content.index(b"\xff")
    if not any(name in content[start : start + 100] for name in (b"Xing", b"Info")):
        return content[start:]
    return content[content.index(content[start : start + 2], start + 40) :]


MP2 = [16_000, 22_050, 24_000, 32_000, 44_100, 48_000]  # FFmpeg encodes no lower rates
MPEG = [*(("libmp3lame", rate) for rate in (8_000, 11_025, *MP2)), *(("mp2", rate) for rate in MP2)]


@pytest.mark.parametrize(("codec", "rate"), MPEG)
def test_mpeg_audio_without_a_count_is_cut_off_if_its_last_frame_is(codec: str, rate: int) -> None:
    content = frames_of(codec, rate)
    assert truncated_media.what_is_missing(content) == ""
    assert truncated_media.what_is_missing(content + b"TAG" + bytes(125)) == ""
    for cut in (1, 40, len(content) // 2 + 1):
        words = truncated_media.what_is_missing(content[:-cut])
        assert words.startswith(f"found {len(content) - cut} bytes of "), cut


def test_mpeg_audio_without_a_count_that_ends_between_two_frames_is_taken_for_whole() -> None:
    content = frames_of("libmp3lame", 16_000)
    frame = content.index(content[:3], 4)
    assert truncated_media.what_is_missing(content[: frame * 9]) == ""
    begun = content[: frame * 9 + 2]
    assert truncated_media.what_is_missing(begun) == f"found {len(begun)} bytes of {len(begun) + 2}"
