"""The most frequent reasons of a quarantine, one per line: for the message of a failed check and the terminal."""

from collections import Counter

import pyarrow as pa

MOST_REASONS = 5
LONGEST_REASON = 200  # characters


def reasons(quarantine: pa.Table, most: int = MOST_REASONS) -> list[str]:
    """Return a line for each of the `most` most frequent reasons, such as `2 x infer: ValueError: too bright`.

    If there are more reasons, a last line has their number.
    """
    counts = Counter[str]()
    for row in quarantine.to_pylist():
        message = row["error_message"].splitlines()[0][:LONGEST_REASON]
        counts[f"{row['stage']}: {row['error_type']}: {message}"] += 1
    lines = [f"{count:,} x {reason}" for reason, count in counts.most_common(most)]
    if len(counts) > len(lines):
        lines.append(f"and {len(counts) - len(lines):,} other reasons")
    return lines
