"""The reasons of quarantined rows in a few words."""

import pytest

from overnight.tasks.rows.reasons import count_reasons, short_reason, told


@pytest.mark.parametrize(
    ("error_type", "message", "uri", "words"),
    [
        (
            "OSError",
            "expected a whole PNG image of 80 x 64, found 200 bytes: it is truncated",
            "a.png",
            "truncated PNG",
        ),
        ("SyntaxError", "expected a whole PNG image of 80 x 64, found 200 bytes: broken", "a.png", "damaged PNG"),
        ("UnidentifiedImageError", "expected an image (JPEG, PNG), found 16 bytes", "a.png", "not an image"),
        ("RowError", "expected an encoded image, the file is empty (0 bytes)", "a.png", "empty file"),
        ("RowError", "column image: expected an image, found null", "", "column image: not an image"),
        ("EOFError", "the stream is truncated", "b/sound.wav", "truncated WAV"),
        ("ValueError", "bad word (steps.py:12, in clean)\nmore", "", "ValueError: bad word"),
        ("RowError", "too long", "", "too long"),
        ("RowError", "x" * 500, "", "x" * 59 + "\u2026"),
    ],
)
def test_a_reason_is_a_few_words_of_the_message(error_type: str, message: str, uri: str, words: str) -> None:
    assert short_reason(error_type, message, uri) == words


def test_the_most_frequent_reasons_come_first_and_the_others_are_counted() -> None:
    rows = [
        {"error_type": "RowError", "error_message": message, "uri": ""}
        for message in [*["three"] * 3, *["two"] * 2, "five", "six", "seven"]
    ]
    found = count_reasons(rows)
    assert found[:2] == [("three", 3), ("two", 2)]
    assert told(found) == "3 three, 2 two, 1 five, 2 for other reasons"
    assert told([]) == ""
