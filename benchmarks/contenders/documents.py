"""Embed the chunks of PDF files by hand: pypdfium2, semantic-text-splitter and sentence-transformers."""

from collections.abc import Iterator
from typing import Any

import numpy as np

SIZE, OVERLAP = 1000, 100


def chunks(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """Yield `NAME#PAGE.CHUNK` and the text of each chunk of a file."""
    import pypdfium2
    from semantic_text_splitter import TextSplitter

    splitter = TextSplitter(SIZE, OVERLAP)
    document = pypdfium2.PdfDocument(content)
    for number, page in enumerate(document, 1):
        text = page.get_textpage().get_text_range().replace("\ufffe", "-")  # at the end of a line
        for chunk, piece in enumerate(splitter.chunks(text)):
            yield f"{name}#{number}.{chunk}", piece
    document.close()


class Embedder:
    """sentence-transformers with its defaults and a given number of threads."""

    def __init__(self, told: dict[str, Any], threads: int | None = None) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        if threads:
            torch.set_num_threads(threads)
        self.model = SentenceTransformer(told["model"], device="cpu")

    def __call__(self, texts: list[str]) -> np.ndarray:
        return np.asarray(self.model.encode(texts, batch_size=32, show_progress_bar=False))
