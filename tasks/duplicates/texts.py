"""Find texts with mostly the same passages, by the Jaccard similarity of their sets of shingles.

A shingle is `SHINGLE` characters in lower case, with one space for any white space, a length for long texts
(Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.2.2). MinHash estimates the similarity from signatures of
`HASHES` numbers, with a standard error of 0.035 at 0.8. Seed, scheme and hash are fixed, and so is a text's signature.
"""

import zlib
from collections.abc import Iterable
from itertools import repeat

import numpy as np

from overnight.tasks.config.extras import require_extra

HASHES, SEED, SHINGLE = 128, 1, 9
MISSED = 1e-4  # the largest fraction of pairs at the threshold that agree in no band, and so are not compared


def signatures(texts: Iterable[str | None]) -> list[bytes | None]:
    """Return the MinHash signature of each text, as the bytes of `HASHES` uint32; None for a null or blank text."""
    datasketch = require_extra("datasketch", "deduplicate: near, of texts", "preprocess")
    empty = datasketch.MinHash(num_perm=HASHES, seed=SEED, scheme="affine32", hashfunc=zlib.crc32)
    return list(map(_signature, texts, repeat(empty)))


def _signature(text: str | None, empty: object) -> bytes | None:
    words = " ".join((text or "").lower().split())
    if not words:
        return None
    shingles = {words[start : start + SHINGLE] for start in range(max(len(words) - SHINGLE + 1, 1))}
    signature = empty.copy()  # type: ignore[attr-defined]
    signature.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in shingles])
    return np.asarray(signature.hashvalues, "<u4").tobytes()


def near(keys: np.ndarray, threshold: float) -> np.ndarray:
    """Return whether each signature (a row of uint8) is similar to an earlier one that stays, so it must be dropped.

    Two signatures are compared only if they agree in a band, which is a slice of their numbers.
    """
    numbers = keys.view("<u4")
    contents = np.stack([_contents(numbers[:, band]) for band in _bands(threshold)])
    is_near = np.zeros(len(numbers), bool)
    stays: dict[tuple[int, int], list[int]] = {}  # by band and its content: the rows that stay
    for row in np.flatnonzero((contents >= 0).any(axis=0)).tolist():
        buckets = []
        for key in enumerate(contents[:, row].tolist()):
            if key[1] >= 0:
                buckets.append(stays.setdefault(key, []))
        rivals = sorted(set[int]().union(*buckets))
        if rivals and (numbers[rivals] == numbers[row]).mean(axis=1).max() >= threshold:
            is_near[row] = True
            continue
        for bucket in buckets:
            bucket.append(row)
    return is_near


def _bands(threshold: float) -> list[slice]:
    """Return the bands of a signature, as long as `MISSED` allows."""
    length = 1
    for size in range(2, HASHES + 1):
        if (1 - threshold**size) ** (HASHES // size) <= MISSED:
            length = size
    return [slice(start, start + length) for start in range(0, HASHES - length + 1, length)]


def _contents(band: np.ndarray) -> np.ndarray:
    """Return a number (int64) for the content of a band in each row; -1 if no other row has it."""
    contents = np.ascontiguousarray(band).view([("", band.dtype)] * band.shape[1]).reshape(-1)
    _, numbers, counts = np.unique(contents, return_inverse=True, return_counts=True)
    return np.where(counts[numbers] > 1, numbers, -1)
