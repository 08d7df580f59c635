"""The words that the small tokenizers of these tests know."""

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "two",
    "old",
    "dogs",
    "run",
    "past",
    "red",
    "house",
    "sea",
]
