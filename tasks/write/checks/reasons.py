"""The most frequent reasons of a quarantine, one per line: for the message of a failed check and the terminal."""

from collections import Counter

import pyarrow as pa

from overnight.tasks.rows.reasons import pattern

MOST_REASONS = 5
LONGEST_REASON = 200  # characters


def reasons(quarantine: pa.Table, most: int = MOST_REASONS) -> list[str]:
    """Return a line for each of the `most` most frequent reasons, such as `2 x infer: ValueError: too bright`.

    Messages that differ only in numbers and values are one reason. A last line has the number of other reasons.
    """
    counts, lines = Counter[tuple[str, ...]](), dict[tuple[str, ...], str]()
    for row in quarantine.to_pylist():
        message = row["error_message"]
        kind = (row["stage"], row["error_type"], pattern(message, row))
        counts[kind] += 1
        lines.setdefault(kind, f"{row['stage']}: {row['error_type']}: {message.splitlines()[0][:LONGEST_REASON]}")
    shown = [f"{count:,} x {lines[kind]}" for kind, count in counts.most_common(most)]
    if len(counts) > len(shown):
        shown.append(f"and {len(counts) - len(shown):,} other reasons")
    return shown
