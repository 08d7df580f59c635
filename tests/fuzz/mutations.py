"""Damaged copies of files, drawn from a seed: the same seed and number give the same bytes.

The changes are those of AFL: flipped bits, numbers at their limits, and pieces that are cut, repeated, moved or taken
from another file.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LONGEST = 2**16  # bytes; what is longer is cut
LIMITS = (0, 1, -1, 16, 32, 64, 100, 127, 128, 255, 256, 512, 1000, 1024, 4096, 32767, 32768, 65535, 65536, 2**31 - 1)
LIMITS += (-(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
DIGITS = re.compile(rb"[0-9]+")
WORDS = (b"", b"0", b"-1", b"NaN", b"inf", b"null", b"true", b"1e999", b"9" * 30, b"\x00", b"\xff\xfe", b"\xc3\x28")
WORDS += (b'"', b"'", b"[", b"]", b"{", b"}", b"<", b">", b"\n", b"\r", b"\t", b",", b":", b"- ", b"%s", b"../", b"#")


@dataclass(frozen=True)
class Sample:
    """A whole file of the corpus. `packed` makes the file of `content`, with check sums that are right."""

    name: str
    content: bytes
    packed: Callable[[bytes], bytes] = bytes


def damaged(samples: Sequence[Sample], name: str, number: int, keeps_length: bool = False) -> Sample:
    """Return a sample with some changes, drawn from `name` and `number`."""
    chance = random.Random(f"{name} {number}")
    sample = chance.choice(samples)
    content = bytearray(sample.content)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4, 8, 16))):
        chance.choice(CHANGES)(content, chance, samples)
    del content[LONGEST:]
    changed = bytes(content)
    if keeps_length:
        changed = (changed + sample.content[len(changed) :])[: len(sample.content)]
    return Sample(sample.name, sample.packed(changed))


def _place(content: bytearray, chance: random.Random) -> int:
    """A byte of the file. Formats keep what matters at their beginnings and ends, so these come more often."""
    last = max(len(content) - 1, 0)
    near = chance.randint(0, min(last, 64))
    return chance.choice((chance.randint(0, last), chance.randint(0, last), near, last - near))


def _piece(content: bytearray | bytes, chance: random.Random) -> tuple[int, int]:
    start = _place(bytearray(content), chance)
    return start, start + chance.choice((1, 2, 4, 8, 16, 64, 256, 1024, len(content)))


def _flip(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    if content:
        content[_place(content, chance)] ^= 1 << chance.randrange(8)


def _set(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    if content:
        content[_place(content, chance)] = chance.randrange(256)


def _number(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    """A number of one to eight bytes at a limit, or a little larger or smaller than it was."""
    place, size, order = _place(content, chance), chance.choice((1, 2, 4, 8)), chance.choice(("little", "big"))
    value = int.from_bytes(content[place : place + size], order)
    value = chance.choice((chance.choice(LIMITS), value + chance.randint(-16, 16))) % 256**size
    content[place : place + size] = value.to_bytes(size, order)


def _digits(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    """A number that is written in digits."""
    if found := list(DIGITS.finditer(content)):
        one = chance.choice(found)
        content[one.start() : one.end()] = b"%d" % chance.choice((chance.choice(LIMITS), 2**64, 10**30, 7))


def _word(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    place = _place(content, chance)
    content[place : place + chance.choice((0, 0, 1, 4))] = chance.choice(WORDS)


def _cut(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    start, stop = _piece(content, chance)
    del content[start:stop]


def _repeat(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    start, stop = _piece(content, chance)
    content[start:start] = content[start:stop] * chance.choice((1, 1, 2, 16))


def _move(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    start, stop = _piece(content, chance)
    place = _place(content, chance)
    content[place : place + stop - start] = content[start:stop]


def _wipe(content: bytearray, chance: random.Random, _: Sequence[Sample]) -> None:
    start, stop = _piece(content, chance)
    content[start:stop] = bytes([chance.choice((0, 0, 255, 32, chance.randrange(256)))]) * len(content[start:stop])


def _splice(content: bytearray, chance: random.Random, samples: Sequence[Sample]) -> None:
    """A piece of another file, or its whole end."""
    other = chance.choice(samples).content
    start, stop = _piece(other, chance)
    place = _place(content, chance)
    content[place : chance.choice((place, place + stop - start, len(content)))] = other[start:stop]


CHANGES = (_flip, _flip, _set, _set, _number, _number, _digits, _word, _cut, _repeat, _move, _wipe, _splice)
