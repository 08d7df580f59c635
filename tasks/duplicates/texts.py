"""Find texts with mostly the same passages, by the Jaccard similarity of their sets of shingles.

A shingle is `SHINGLE` consecutive characters of the text in lower case, with one space for any white space. Its length
suits long texts (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.2.2). MinHash estimates the
similarity from signatures of `HASHES` numbers; the standard error at 0.8 is 0.035. The seed, the scheme and the hash of
a shingle are fixed, so a text always has the same signature.
"""

import zlib
from collections.abc import Iterable

import numpy as np

from overnight.tasks.config.extras import require_extra

HASHES, SEED, SHINGLE = 128, 1, 9
MISSED = 1e-4  # the largest fraction of pairs at the threshold that agree in no band, and so are not compared


def signatures(texts: Iterable[str | None]) -> list[bytes | None]:
    """Return the MinHash signature of each text, as the bytes of `HASHES` uint32; None for a null or blank text.

    Raise `JobError` if datasketch is not installed.
    """
    datasketch = require_extra("datasketch", "deduplicate: near, of texts", "preprocess")
    empty = datasketch.MinHash(num_perm=HASHES, seed=SEED, scheme="affine32", hashfunc=zlib.crc32)
    return [_signature(text, empty) for text in texts]


def _signature(text: str | None, empty: object) -> bytes | None:
    words = " ".join((text or "").lower().split())
    if not words:
        return None
    shingles = {words[start : start + SHINGLE] for start in range(max(len(words) - SHINGLE + 1, 1))}
    signature = empty.copy()  # type: ignore[attr-defined]
    signature.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in shingles])
    return np.asarray(signature.hashvalues, "<u4").tobytes()


def near(keys: np.ndarray, threshold: float) -> np.ndarray:
    """Return a bool for each signature: True if an earlier one that stays is similar to it, so that it must be dropped.

    `keys` is an array of uint8 with one signature per row. `threshold` is the least estimated similarity of duplicates.
    Two signatures are compared only if they agree in a band, which is a slice of their numbers. Bands are so short that
    at most a fraction `MISSED` of the pairs at the threshold is never compared.
    """
    signatures = keys.view("<u4")
    shared = [_shared(signatures[:, band]) for band in _bands(threshold)]
    gone = np.zeros(len(signatures), bool)
    kept: list[dict[int, list[int]]] = [{} for _ in shared]  # by band: the rows that stay, by the band's content
    for row in np.flatnonzero(np.any([content >= 0 for content in shared], axis=0)).tolist():
        own = [(band, int(content[row])) for band, content in enumerate(shared) if content[row] >= 0]
        others = sorted({other for band, content in own for other in kept[band].get(content, ())})
        if others and (signatures[others] == signatures[row]).mean(axis=1).max() >= threshold:
            gone[row] = True
            continue
        for band, content in own:
            kept[band].setdefault(content, []).append(row)
    return gone


def _bands(threshold: float) -> list[slice]:
    """Return the bands of a signature, as long as `MISSED` allows."""
    length = max(
        (size for size in range(1, HASHES + 1) if (1 - threshold**size) ** (HASHES // size) <= MISSED), default=1
    )
    return [slice(start, start + length) for start in range(0, HASHES - length + 1, length)]


def _shared(band: np.ndarray) -> np.ndarray:
    """Return a number (int64) for the content of a band in each row; -1 if no other row has it."""
    content = np.ascontiguousarray(band).view([("", band.dtype)] * band.shape[1]).reshape(-1)
    _, numbers, counts = np.unique(content, return_inverse=True, return_counts=True)
    return np.where(counts[numbers] > 1, numbers, -1)
