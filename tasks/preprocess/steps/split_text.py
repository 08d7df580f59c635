"""Long texts in chunks: a text in, a row out for each chunk. Whitespace around chunks is dropped.

Column in: `column` (string). Columns out: the chunk in its place, `chunk` (int64, from 0), `chunk_start` and
`chunk_end` (int64): the chunk is the text's characters from one to before the other. `row_id` gets the chunk's number,
`a.txt#2` or, of a PDF's page, `report.pdf#3.2`. A text without any character but whitespace makes no row.

By characters, a chunk ends with a word where there is a space in its second half, and the next begins with one where
there is a space in the overlap. By tokens, of the tokenizer that `tokenizer` names and without its special tokens.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from overnight.tasks.config.package_data import PREFIX, folder_in_package
from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result
from overnight.tasks.storage.location import expand

Spans = Callable[[str], list[tuple[int, int]]]


class SplitText(PreprocessStep):
    """Makes a row of every so many characters or tokens of a text."""

    kind: Literal["split_text"] = "split_text"
    column: Annotated[str, Field(description="The column with the texts.")] = "text"
    size: Annotated[PositiveInt, Field(description="Characters, or tokens, of a chunk at most.")] = 1000
    overlap: Annotated[NonNegativeInt, Field(description="How many of them a chunk shares with the next at most.")] = 0
    tokenizer: Annotated[
        str | None,
        Field(description="Counts tokens: a hub name, a folder with tokenizer.json, or package:NAME/FOLDER."),
    ] = None

    @model_validator(mode="after")
    def _overlap_leaves_half(self) -> Self:
        if self.overlap * 2 > self.size:
            raise ValueError(f"overlap: expected at most half of size ({self.size // 2}), found {self.overlap}")
        return self

    def fingerprint(self) -> dict[str, str]:
        file = _folder(self.tokenizer) / "tokenizer.json" if self.tokenizer else None
        if file is None or not file.is_file():
            return {}
        return {"tokenizer.json": hashlib.sha256(file.read_bytes()).hexdigest()}

    def build(self) -> result.Work:
        spans = self._spans()

        def split(table: pa.Table) -> result.Outcome:
            if self.column not in table.column_names:
                raise ContractError(
                    f"split_text: expected a column {self.column!r}, found {', '.join(table.column_names)}.",
                    "preprocess",
                )
            found, failed = [], {}
            for row, text in enumerate(table[self.column].to_pylist()):
                if isinstance(text, str):
                    found += [(row, number, text, *span) for number, span in enumerate(spans(text))]
                else:
                    what = "no value" if text is None else type(text).__name__
                    failed[row] = RowError(f"{self.column}: expected a text, found {what}")
            columns = {
                self.column: pa.array([text[start:end] for _, _, text, start, end in found], pa.string()),
                "chunk": pa.array([number for _, number, *_ in found], pa.int64()),
                "chunk_start": pa.array([start for *_, start, _ in found], pa.int64()),
                "chunk_end": pa.array([end for *_, end in found], pa.int64()),
            }
            return result.several(columns, [row for row, *_ in found], [number for _, number, *_ in found], failed)

        return split

    def _spans(self) -> Spans:
        if self.tokenizer is None:
            return lambda text: list(by_characters(text, self.size, self.overlap))
        tokenizer = _tokenizer(self.tokenizer)
        return lambda text: by_tokens(text, _offsets(tokenizer, text), self.size, self.overlap)


def by_characters(text: str, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """The first character of each chunk and the one after its last. Each ends further on than the one before it."""
    start = fresh = _first_word(text, 0)  # fresh: the first character that no chunk has
    while fresh < len(text):
        end = min(start + size, len(text))
        if end < len(text) and not text[end].isspace():
            low = max(start + size // 2, fresh + 1)
            spaces = [found.start() for found in re.finditer(r"\s", text[low:end])]
            end = low + spaces[-1] if spaces else end
        end = start + len(text[start:end].rstrip())
        yield start, end
        fresh = _first_word(text, end)
        start = _next_start(text, end, max(end - overlap, start + 1))
        start = start if start + size > fresh else fresh


def by_tokens(text: str, offsets: list[tuple[int, int]], size: int, overlap: int) -> list[tuple[int, int]]:
    """The same by tokens, given each token's first character and the one after its last."""
    offsets = [(start, end) for start, end in offsets if end > start and text[start:end].strip()]
    starts = range(0, max(len(offsets) - overlap, min(len(offsets), 1)), size - overlap)
    return [(offsets[first][0], offsets[min(first + size, len(offsets)) - 1][1]) for first in starts]


def _next_start(text: str, end: int, wanted: int) -> int:
    """The first word that begins at `wanted` or later, else `wanted`; what follows `end` where nothing overlaps."""
    if wanted < end and not text[wanted - 1].isspace():
        space = re.search(r"\s", text[wanted:end])
        wanted += space.start() if space else 0
    return _first_word(text, wanted)


def _first_word(text: str, start: int) -> int:
    found = re.compile(r"\S").search(text, start)
    return found.start() if found else len(text)


def _folder(tokenizer: str) -> Path:
    """Where it lies unless it is a hub name. Raises `JobError` for a package that is not installed."""
    name = expand(tokenizer)
    if name.startswith(PREFIX):
        return folder_in_package(name, f"split_text: tokenizer {tokenizer}", "preprocess")
    return Path(name).expanduser()


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    folder = _folder(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder) if folder.is_dir() else expand(name))
    except Exception as error:
        raise JobError(f"split_text: tokenizer {name} cannot be loaded: {error}", "preprocess") from error
    if not tokenizer.is_fast:
        raise JobError(
            f"split_text: tokenizer {name} does not say where its tokens lie (it has no tokenizer.json). "
            "Use another, or leave it out to count characters.",
            "preprocess",
        )
    return tokenizer


def _offsets(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return list(encoded["offset_mapping"])
