"""PDF files to embedded chunks from a job file, against pypdfium2 and transformers by hand."""

from pathlib import Path

import numpy as np
import pypdfium2
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from tasks.preprocess.split_text import by_characters
from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published
from tests.tasks.infer.test_text_embedding import some_texts, word_tokenizer
from tests.tasks.infer.words import WORDS
from tests.tasks.preprocess.pdfs import BROKEN, pdf


def test_the_chunks_of_pdf_files_are_embedded_as_by_hand(tmp_path: Path, run_job: RunJob) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    config = BertConfig(vocab_size=len(WORDS) + 4, max_position_embeddings=64, initializer_range=0.5, **sizes)
    BertModel(config).save_pretrained(tmp_path / "model")
    word_tokenizer(cls_token="[CLS]", sep_token="[SEP]", model_max_length=64).save_pretrained(tmp_path / "model")
    (tmp_path / "in").mkdir()
    lines = iter(some_texts(200, 12))
    for number in range(12):
        pages = [[next(lines) for _ in range(5)] if page % 4 else [] for page in range(1, 2 + number % 5)]
        (tmp_path / f"in/{number:02d}.pdf").write_bytes(pdf(pages))
    for name, (content, _) in BROKEN.items():
        (tmp_path / f"in/{name}.pdf").write_bytes(content)
    job = {
        "name": "documents",
        "source": {"kind": "pdf", "path": str(tmp_path / "in")},
        "preprocess": [{"kind": "pdf_text"}, {"kind": "split_text", "size": 80, "overlap": 20}],
        "inference": [{"kind": "text_embedding", "model": str(tmp_path / "model"), "text_column": "text"}],
        "checks": {"max_quarantined": 0.6},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 4},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=receipt["rows_written"])
    counts = {name: receipt[f"rows_{name}"] for name in ("in", "written", "filtered", "quarantined")}
    assert counts == {"in": 12 + len(BROKEN), "written": 12, "filtered": 0, "quarantined": len(BROKEN)}
    assert_quarantined(tmp_path / "out", {f"{name}.pdf": reason for name, (_, reason) in BROKEN.items()})

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    network = AutoModel.from_pretrained(tmp_path / "model").eval()
    expected = {}
    for path in sorted((tmp_path / "in").glob("[01]*.pdf")):
        for number, page in enumerate(pypdfium2.PdfDocument(path), 1):
            text = page.get_textpage().get_text_bounded()
            for chunk, (start, end) in enumerate(by_characters(text, 80, 20)):
                with torch.no_grad():
                    tokens = tokenizer(text[start:end], return_tensors="pt")
                    mean = network(**tokens).last_hidden_state[0].mean(0).numpy()
                expected[f"{path.name}#{number}.{chunk}"] = (text[start:end], number, mean)
    table = published(receipt, tmp_path / "out")
    assert receipt["rows_out"] == len(table) == len(expected) > 60
    assert set(table.column_names) == {
        *("row_id", "uri", "text", "page", "pages", "chunk", "chunk_start", "chunk_end", "embedding"),
    }
    for row in table.to_pylist():
        text, number, mean = expected.pop(row["row_id"])
        assert (row["text"], row["page"]) == (text, number)
        np.testing.assert_allclose(row["embedding"], mean, atol=1e-4)
