"""Check that a sound or video file is complete, by the length or the end that its container declares.

FFmpeg reads what exists of a file. Some containers, such as live recordings, declare no length. For them only the
decoded seconds can show that something is missing, see `ffmpeg.py`. An MP3 file without a Xing header does not count
its frames. It counts as cut off if its last frame is, and as whole if it ends between two frames.
"""

import struct
from collections.abc import Callable

UNKNOWN_SIZES = (0, 2**32 - 1)  # in a file that was written as a stream
END_OF_STREAM = 4  # https://www.rfc-editor.org/rfc/rfc3533#section-6
W64 = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
ID3_FOOTER = 16
MP3_SIDE_INFO = (32, 17, 9)  # bytes between a frame's header and its Xing header: by version and channels
XING_COUNTS = 3  # its flags for frames and bytes
FROM_THE_FRAME = (b"LAME", b"Lavf", b"Lavc")
MPEG_1, MPEG_2, LAYER_2, LAYER_3 = 3, 2, 2, 1  # as the bits of a frame's header have them
KILOBITS = {
    (MPEG_1, LAYER_2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (MPEG_1, LAYER_3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (MPEG_2, LAYER_3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
MPEG_RATES, RATE_SHIFTS = (44_100, 48_000, 32_000), {MPEG_1: 0, MPEG_2: 1, 0: 2}  # halved for MPEG 2, twice for 2.5
MPEG_HEADER, LEAST_FRAMES = 4, 2  # fewer frames may be chance
EBML, SEGMENT, CLUSTER = b"\x1a\x45\xdf\xa3", 0x18538067, 0x1F43B675


def what_is_missing(content: bytes) -> str:
    """Return a text such as `found 97 bytes of 100` if a file is cut off.

    The text is empty if the file is whole, or if its container does not declare its length or end. The content of the
    bytes is not checked.
    """
    for is_such, expected_bytes in FORMATS:
        if is_such(content):
            try:
                least = expected_bytes(content)
            except (struct.error, IndexError):
                return ""  # a truncated header, which FFmpeg reports
            return f"found {len(content)} bytes of {least}" if least > len(content) else ""
    return _missing_of_ogg(content) if content.startswith(b"OggS") else ""


def _riff(content: bytes) -> int:
    """Return the length of WAV and AVI files; an AVI file may be several in sequence."""
    place, order = 0, ">" if content.startswith(b"RIFX") else "<"
    while content[place : place + 4] in (b"RIFF", b"RIFX"):
        (size,) = struct.unpack_from(f"{order}I", content, place + 4)
        if size in UNKNOWN_SIZES or size < 4:
            return 0
        place += 8 + size + size % 2 * (place + 8 + size < len(content))
    return place


def _rf64(content: bytes) -> int:
    """Return the length of WAV files beyond 4 GB (RF64, BW64). The chunk ds64, which comes first, holds it."""
    (size,) = struct.unpack_from("<Q", content, 20)
    return int(size) + 8 if content[12:16] == b"ds64" and size else 0


def _aiff(content: bytes) -> int:
    (size,) = struct.unpack_from(">I", content, 4)
    return 0 if size in UNKNOWN_SIZES else int(size) + 8


def _au(content: bytes) -> int:
    start, size = struct.unpack_from(">II", content, 4)
    return 0 if size in UNKNOWN_SIZES else int(start + size)


def _caf(content: bytes) -> int:
    place = 8
    while place + 12 <= len(content):
        (size,) = struct.unpack_from(">q", content, place + 4)
        if size < 0:  # the sound reaches to the end of the file
            return 0
        place += 12 + size
    return place


def _asf(content: bytes) -> int:
    """Return the length of WMA and WMV, and also Sony's W64: each part begins with a name of 16 bytes and its size."""
    place = 0
    while place + 24 <= len(content):
        (size,) = struct.unpack_from("<Q", content, place + 16)
        if size < 24 or size == 2**64 - 1:
            return 0
        place += size
    return place


def _mp4(content: bytes) -> int:
    """Return the length of MP4, MOV, M4A and 3GP: a sequence of boxes."""
    place = 0
    while place + 8 <= len(content) and content[place + 4 : place + 8].isalnum():
        (size,) = struct.unpack_from(">I", content, place)
        if size == 1:
            (size,) = struct.unpack_from(">Q", content, place + 8)
        if size < 8:  # 0: to the end of the file
            return 0
        place += size
    return place


def _matroska(content: bytes) -> int:
    """Return the length of Matroska and WebM. A live recording has no total size, but its pieces have sizes."""
    place = 0
    while place < len(content) and content[place]:
        name, place = _number(content, place)
        size, stop = _number(content, place)
        bits = 7 * (stop - place)
        is_known, place = size != (1 << bits + 1) - 1, stop
        if is_known:
            place += size - (1 << bits)
        elif name not in (SEGMENT, CLUSTER):
            return 0
    return place


def _number(content: bytes, place: int) -> tuple[int, int]:
    """Return a number of EBML, with the bit that marks its length, and the place of its end."""
    stop = place + 9 - content[place].bit_length()
    return int.from_bytes(content[place:stop].ljust(stop - place, b"\0"), "big"), stop


def _mp3(content: bytes) -> int:
    """Return the length of MP3 with a Xing header in its first frame that counts bytes.

    LAME and FFmpeg count from that frame on. The count of other encoders may include the tags before the frame. Without
    a count, the last frame decides.
    """
    start = 0
    while content[start : start + 3] == b"ID3":  # https://id3.org/id3v2.4.0-structure, 3.1
        sevens = struct.unpack_from("4B", content, start + 6)
        length = sum((byte & 127) << 7 * place for place, byte in enumerate(reversed(sevens)))
        start += 10 + length + (10 if content[start + 5] & ID3_FOOTER else 0)
    for place in (start + 4 + side for side in MP3_SIDE_INFO):
        if content[place : place + 4] in (b"Xing", b"Info"):
            flags, _, size = struct.unpack_from(">III", content, place + 4)
            if flags & XING_COUNTS != XING_COUNTS or not size:
                return 0
            return (start if content[place + 120 : place + 124] in FROM_THE_FRAME else 0) + int(size)
    return _end_of_frames(content, start)


def _end_of_frames(content: bytes, place: int) -> int:
    """Return the end of the last of consecutive frames from `place`, or 0 if there are too few frames.

    The end may be beyond the end of the file.
    """
    frames = 0
    while size := _frame_bytes(content[place : place + MPEG_HEADER]):
        frames, place = frames + 1, place + size
    return place if frames >= LEAST_FRAMES else 0


def _frame_bytes(header: bytes) -> int:
    """Return the number of bytes in a frame of MPEG audio, layers 2 and 3, by its header.

    Return 0 for other bytes, and for a header without a bit rate.
    """
    if header[:1] == b"\xff" and len(header) < MPEG_HEADER:
        return MPEG_HEADER  # it breaks off itself
    if len(header) < MPEG_HEADER or header[0] != 0xFF or header[1] < 0xE0:
        return 0
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    kilobits, rate = header[2] >> 4, header[2] >> 2 & 3
    if version not in RATE_SHIFTS or layer not in (LAYER_2, LAYER_3) or kilobits in (0, 15) or rate == 3:
        return 0
    table = KILOBITS[(MPEG_1, layer) if version == MPEG_1 else (MPEG_2, LAYER_3)]
    samples = 576 if layer == LAYER_3 and version != MPEG_1 else 1152
    hertz = MPEG_RATES[rate] >> RATE_SHIFTS[version]
    return samples // 8 * table[kilobits - 1] * 1000 // hertz + (header[2] >> 1 & 1)


def _missing_of_ogg(content: bytes) -> str:
    """Return the reason for missing ends in Ogg (Opus, Vorbis, FLAC, Theora).

    The last page of each stream is marked.
    """
    place, open_streams = 0, set()
    while (place := content.find(b"OggS", place)) >= 0:
        head = content[place : place + 27]
        lengths = content[place + 27 : place + 27 + head[-1]] if len(head) == 27 else b""
        stop = place + 27 + len(lengths) + sum(lengths)
        if len(head) < 27 or len(lengths) < head[-1] or stop > len(content):
            return f"found that {len(content)} bytes end inside a page"
        stream = head[14:18]
        if head[5] & END_OF_STREAM:
            open_streams.discard(stream)
        else:
            open_streams.add(stream)
        place = stop
    return f"found no mark that ends its stream in {len(content)} bytes" if open_streams else ""


FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes], int]], ...] = (
    (lambda content: content[:4] in (b"RIFF", b"RIFX"), _riff),
    (lambda content: content[:4] in (b"RF64", b"BW64"), _rf64),
    (lambda content: content[:4] == b"FORM", _aiff),
    (lambda content: content[:4] == b".snd", _au),
    (lambda content: content[:4] == b"caff", _caf),
    (lambda content: content[:16] in (W64, ASF), _asf),
    (lambda content: content[4:8] in BOXES, _mp4),
    (lambda content: content[:4] == EBML, _matroska),
    (lambda content: content[:3] == b"ID3" or (content[:1] == b"\xff" and content[1] >= 0xE0), _mp3),
)
