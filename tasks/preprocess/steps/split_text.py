"""Long texts in chunks: a text in, one row out for each chunk. Whitespace around chunks is dropped.

Column in: `column` (string). Columns out: the chunk in its place, `chunk` (int64, from 0), `chunk_start` and
`chunk_end` (int64): the chunk is the text's characters from `chunk_start` to before `chunk_end`. `row_id` gets the
chunk's number, `a.txt#2`. semantic-text-splitter cuts at the ends of paragraphs if they fit, otherwise of sentences,
otherwise of words. The overlap with the previous chunk consists of whole such pieces too, so it is often less.
"""

import contextlib
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.package_data import PREFIX, folder_in_package
from overnight.tasks.errors import JobError, RowError
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.preprocess.input_columns import numbered, require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.storage.argument_files import hash_of
from overnight.tasks.storage.location import expand

LIBRARY = "semantic-text-splitter"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


class SplitText(PreprocessStep):
    """Makes one row per chunk of characters or tokens of a text."""

    kind: Literal["split_text"] = "split_text"

    can_be_remembered: ClassVar[bool] = True

    column: Annotated[str, Field(description="The column with the texts.")] = "text"
    size: Annotated[
        PositiveInt, Field(description="The longest chunk, in characters, or in tokens if tokenizer is set.")
    ] = 1000
    overlap: Annotated[
        NonNegativeInt, Field(description="The most characters or tokens that a chunk shares with the next one.")
    ] = 0
    tokenizer: Annotated[
        str | None,
        Field(description="Counts tokens: a hub name, a folder with tokenizer.json, or package:NAME/FOLDER."),
    ] = None

    @field_validator("tokenizer")
    @classmethod
    def _is_no_address(cls, tokenizer: str | None) -> str | None:
        if tokenizer and "://" in tokenizer:
            raise ValueError(_unusable(tokenizer))
        return tokenizer

    @model_validator(mode="after")
    def _overlap_leaves_half(self) -> Self:
        if self.overlap * 2 > self.size:
            raise ValueError(f"overlap: expected at most half of size ({self.size // 2}), found {self.overlap}")
        return self

    def inputs(self) -> list[str]:
        return [self.column]

    def fingerprint(self) -> dict[str, str]:
        versions = {}
        with contextlib.suppress(PackageNotFoundError):  # `build` reports it
            # another version may cut at other places, and a resume must not
            versions[LIBRARY] = version(LIBRARY)
        if self.tokenizer:
            file = _folder(self.tokenizer) / "tokenizer.json"
            if file.is_file():
                versions[file.name] = hash_of(file)
        return versions

    def further_files(self) -> dict[str, str]:
        """Return the sha256 of all files of the tokenizer, which may lack tokenizer.json."""
        hashes = {}
        if self.tokenizer:
            for file in sorted(_folder(self.tokenizer).glob("*")):
                if file.is_file():
                    hashes[f"tokenizer/{file.name}"] = hash_of(file)
        return hashes

    def remembered(self, memory: ModelMemory) -> Self:
        if self.tokenizer and not _folder(self.tokenizer).is_dir():
            raise JobError(
                f"split_text: remember: expected a folder as tokenizer, whose files have versions, found "
                f"{self.tokenizer}. Copy the tokenizer into a folder, or leave out remember.",
                "preprocess",
            )
        return super().remembered(memory)

    def libraries(self) -> tuple[str, ...]:
        return ("semantic_text_splitter",)

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect([self.column], makes=[self.column, "chunk", "chunk_start", "chunk_end"])

    def build(self) -> result.Work:
        splitters = require_extra("semantic_text_splitter", "split_text", "preprocess").TextSplitter
        if self.tokenizer is None:
            splitter = splitters(self.size, self.overlap)
        else:
            splitter = splitters.from_huggingface_tokenizer(_tokenizer(self.tokenizer), self.size, self.overlap)

        def split(table: pa.Table) -> result.Outcome:
            require_columns(table, [self.column], self.kind)
            counts = np.zeros(len(table), np.int64)
            starts: list[int] = []
            chunks: list[str] = []
            errors: dict[int, Exception] = {}
            for row, text in enumerate(table[self.column].to_pylist()):
                if not isinstance(text, str):
                    kind = "no value" if text is None else type(text).__name__
                    errors[row] = RowError(f"{self.column}: expected a text, found {kind}")
                    continue
                for start, chunk in splitter.chunk_indices(text):
                    counts[row] += 1
                    starts.append(start)
                    chunks.append(chunk)
            sources, numbers = numbered(counts)
            columns = {
                self.column: pa.array(chunks, pa.string()),
                "chunk": pa.array(numbers, pa.int64()),
                "chunk_start": pa.array(starts, pa.int64()),
                "chunk_end": pa.array(np.array(starts, np.int64) + np.array(list(map(len, chunks)), np.int64)),
            }
            return result.several(columns, sources, numbers, errors)

        return split


def _unusable(tokenizer: str) -> str:
    return (
        f"expected a name on the hub, a folder on the disk of each worker, or package:NAME/FOLDER, found {tokenizer}. "
        "Copy the folder of the tokenizer there"
    )


def _folder(tokenizer: str) -> Path:
    """Return the tokenizer's folder unless it is a hub name. Raise `JobError` for a package that is not installed."""
    name = expand(tokenizer)
    if name.startswith(PREFIX):
        return folder_in_package(name, f"split_text: tokenizer {tokenizer}", "preprocess")
    return Path(name).expanduser()


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    folder = _folder(name)
    if not folder.is_dir() and not HUB_NAME.fullmatch(expand(name)):
        raise JobError(f"split_text: tokenizer: {_unusable(name)}.", "preprocess")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder) if folder.is_dir() else expand(name))
    except Exception as error:
        raise JobError(f"split_text: tokenizer {name} cannot be loaded: {error}", "preprocess") from error
    if not tokenizer.is_fast:
        raise JobError(
            f"split_text: expected a tokenizer with a tokenizer.json, found {name} without one. "
            "Use another, or leave it out to count characters.",
            "preprocess",
        )
    counting = tokenizer.backend_tokenizer
    counting.no_truncation()  # otherwise it would count no more tokens than its model reads
    counting.no_padding()
    return counting
