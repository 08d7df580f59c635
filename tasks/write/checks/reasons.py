"""The most frequent reasons of a quarantine, in lines."""

from collections import Counter

import pyarrow as pa

REASONS_TOLD = 5
LONGEST_REASON = 200  # characters


def reasons(found: pa.Table, most: int = REASONS_TOLD) -> list[str]:
    """Return `2 x infer: ValueError: too bright` for each of the most frequent reasons, and the number of the others.

    `found` has the columns of a quarantine.
    """
    counted = Counter(
        f"{row['stage']}: {row['error_type']}: {row['error_message'].splitlines()[0][:LONGEST_REASON]}"
        for row in found.to_pylist()
    )
    lines = [f"{count:,} x {reason}" for reason, count in counted.most_common(most)]
    more = len(counted) - len(lines)
    return [*lines, f"and {more:,} other reasons"] if more > 0 else lines
