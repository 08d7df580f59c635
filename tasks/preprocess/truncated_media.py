"""Check that a sound or video file is complete, by the length or the end that its container declares.

FFmpeg reads what exists of a file. Some containers, such as live recordings, declare no length: see `ffmpeg.py`. An MP3
file without a Xing header does not count its frames. It is whole if it ends between two frames.
"""

import struct
from collections.abc import Callable

UNKNOWN_SIZES = (0, 2**32 - 1)  # in a file that was written as a stream
END_OF_STREAM = 4  # https://www.rfc-editor.org/rfc/rfc3533#section-6
W64 = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
ID3_FOOTER = 16
# bytes between a frame's header and its Xing header: by version and channels
MP3_SIDE_INFO = (32, 17, 9)
XING_COUNTS = 3  # its flags for frames and bytes
FROM_THE_FRAME = (b"LAME", b"Lavf", b"Lavc")
MPEG_1, MPEG_2, LAYER_2, LAYER_3 = 3, 2, 2, 1  # as the bits of a frame's header have them
KILOBITS = {
    (MPEG_1, LAYER_2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (MPEG_1, LAYER_3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (MPEG_2, LAYER_3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
# halved for MPEG 2, twice for 2.5
MPEG_RATES, RATE_SHIFTS = (44_100, 48_000, 32_000), {MPEG_1: 0, MPEG_2: 1, 0: 2}
MPEG_HEADER, LEAST_FRAMES = 4, 2  # fewer frames may be chance
EBML, SEGMENT, CLUSTER = b"\x1a\x45\xdf\xa3", 0x18538067, 0x1F43B675


def what_is_missing(content: bytes) -> str:
    """Return a text such as `found 97 bytes of 100` if a file is cut off.

    The text is empty if the file is whole, or if its container does not declare its length or end.
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
    end, order = 0, ">" if content.startswith(b"RIFX") else "<"
    while content[end : end + 4] in (b"RIFF", b"RIFX"):
        (size,) = struct.unpack_from(f"{order}I", content, end + 4)
        if size in UNKNOWN_SIZES or size < 4:
            return 0
        end += 8 + size
        if size % 2 and end < len(content):  # a byte of padding
            end += 1
    return end


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
    end = 8
    while end + 12 <= len(content):
        (size,) = struct.unpack_from(">q", content, end + 4)
        if size < 0:  # the sound reaches to the end of the file
            return 0
        end += 12 + size
    return end


def _asf(content: bytes) -> int:
    """Return the length of WMA and WMV, and also Sony's W64: each part begins with a name of 16 bytes and its size."""
    end = 0
    while end + 24 <= len(content):
        (size,) = struct.unpack_from("<Q", content, end + 16)
        if size < 24 or size == 2**64 - 1:
            return 0
        end += size
    return end


def _mp4(content: bytes) -> int:
    """Return the length of MP4, MOV, M4A and 3GP: a sequence of boxes."""
    end = 0
    while end + 8 <= len(content) and content[end + 4 : end + 8].isalnum():
        (size,) = struct.unpack_from(">I", content, end)
        if size == 1:
            (size,) = struct.unpack_from(">Q", content, end + 8)
        if size < 8:  # 0: to the end of the file
            return 0
        end += size
    return end


def _matroska(content: bytes) -> int:
    """Return the length of Matroska and WebM. A live recording has no total size, but its pieces have sizes."""
    end = 0
    while end < len(content) and content[end]:
        name, end = _number(content, end)
        size, stop = _number(content, end)
        bits = 7 * (stop - end)
        end = stop
        if size != (1 << bits + 1) - 1:
            end += size - (1 << bits)
        elif name not in (SEGMENT, CLUSTER):
            return 0
    return end


def _number(content: bytes, start: int) -> tuple[int, int]:
    """Return a number of EBML, with the bit that marks its length, and the place of its end."""
    stop = start + 9 - content[start].bit_length()
    return int.from_bytes(content[start:stop].ljust(stop - start, b"\0"), "big"), stop


def _mp3(content: bytes) -> int:
    """Return the length of MP3 by the count in the Xing header of its first frame, otherwise the end of its last frame.

    LAME and FFmpeg count from that frame on. The count of other encoders may include the tags before the frame.
    """
    start = 0
    while content[start : start + 3] == b"ID3":  # https://id3.org/id3v2.4.0-structure, 3.1
        sevens = struct.unpack_from("4B", content, start + 6)
        length = sum((byte & 127) << 7 * digit for digit, byte in enumerate(reversed(sevens)))
        start += 10 + length + (10 if content[start + 5] & ID3_FOOTER else 0)
    for side_info in MP3_SIDE_INFO:
        header = start + 4 + side_info
        if content[header : header + 4] in (b"Xing", b"Info"):
            flags, _, size = struct.unpack_from(">III", content, header + 4)
            if flags & XING_COUNTS != XING_COUNTS or not size:
                return 0
            counts_from_frame = content[header + 120 : header + 124] in FROM_THE_FRAME
            return start + int(size) if counts_from_frame else int(size)
    frames, end = 0, start
    while size := _frame_bytes(content[end : end + MPEG_HEADER]):
        frames, end = frames + 1, end + size
    return end if frames >= LEAST_FRAMES else 0


def _frame_bytes(header: bytes) -> int:
    """Return the bytes in a frame of MPEG audio, layers 2 and 3, by its header; 0 for any other header."""
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
    """Return the reason for missing ends in Ogg (Opus, Vorbis, FLAC, Theora): the last page of a stream is marked."""
    open_streams = set()
    start = content.find(b"OggS")
    while start >= 0:
        head = content[start : start + 27]
        lengths = content[start + 27 : start + 27 + head[-1]] if len(head) == 27 else b""
        stop = start + 27 + len(lengths) + sum(lengths)
        if len(head) < 27 or len(lengths) < head[-1] or stop > len(content):
            return f"found that {len(content)} bytes end inside a page"
        stream = head[14:18]
        if head[5] & END_OF_STREAM:
            open_streams.discard(stream)
        else:
            open_streams.add(stream)
        start = content.find(b"OggS", stop)
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
