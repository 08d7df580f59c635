"""Row ranges that overlap, cut so that each row is held by the first range that names it.

It knows nothing of parts or states: ranges come in order of precedence, pieces go out with the range that each is of.
"""

import numpy as np


def cut(unit: np.ndarray, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Unit, start and stop of pieces that do not overlap, and the index of the range that each piece is of (all int64).

    Of the ranges `start` <= row < `stop` of a unit that hold a row, the one given first keeps it.
    """
    units, rows = np.concatenate([unit, unit]), np.concatenate([start, stop])
    order = np.lexsort((rows, units))
    units, rows = units[order], rows[order]
    fresh = np.ones(len(units), bool)
    fresh[1:] = (units[1:] != units[:-1]) | (rows[1:] != rows[:-1])
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(fresh) - 1
    units, rows = units[fresh], rows[fresh]  # the bounds, each once; between one and the next lies a segment
    owner = first_cover(place[: len(unit)], place[len(unit) :], len(rows))
    begins = np.flatnonzero((owner != np.append(-1, owner[:-1])) & (owner < len(unit)))
    changes = np.append(np.flatnonzero(owner[1:] != owner[:-1]) + 1, len(owner))
    ends = changes[np.searchsorted(changes, begins, side="right")]
    return units[begins], rows[begins], rows[ends], owner[begins]


def first_cover(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """The lowest index of an interval [low, high) that covers each place 0 <= p < `count`; len(low) where none does.

    A sparse table for range minima, run backwards: an interval is two stretches of 2^k places that may overlap, and
    what covers a stretch covers both of its halves. O((intervals + count) log count), however much they overlap.
    """
    cover = np.full(count, len(low))
    level = np.frexp(high - low)[1] - 1
    for k in range(int(level.max(initial=-1)), -1, -1):
        length = 2**k
        halves = cover.copy()
        np.minimum(halves[length:], cover[: max(count - length, 0)], out=halves[length:])
        cover = halves
        found = np.flatnonzero(level == k)
        np.minimum.at(cover, low[found], found)
        np.minimum.at(cover, high[found] - length, found)
    return cover
