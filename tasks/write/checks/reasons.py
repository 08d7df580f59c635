"""The most frequent reasons of a quarantine, one per line."""

from collections import Counter

import pyarrow as pa

REASONS_TOLD = 5
LONGEST_REASON = 200  # characters


def reasons(found: pa.Table, most: int = REASONS_TOLD) -> list[str]:
    """Return a line for each of the `most` most frequent reasons, such as `2 x infer: ValueError: too bright`.

    `found` is a quarantine. If it has more reasons, a last line has the number of the others.
    """
    counted = Counter(
        f"{row['stage']}: {row['error_type']}: {row['error_message'].splitlines()[0][:LONGEST_REASON]}"
        for row in found.to_pylist()
    )
    lines = [f"{count:,} x {reason}" for reason, count in counted.most_common(most)]
    more = len(counted) - len(lines)
    return [*lines, f"and {more:,} other reasons"] if more > 0 else lines
