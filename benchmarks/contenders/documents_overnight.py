"""Overnight's `pdf_text`, `split_text` and `text_embedding`."""

from data import settings
from documents import OVERLAP, SIZE
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    run(
        out,
        {
            "name": "benchmark-documents",
            "source": {"kind": "pdf", "path": told["documents"]},
            "preprocess": [{"kind": "pdf_text"}, {"kind": "split_text", "size": SIZE, "overlap": OVERLAP}],
            "inference": [{"kind": "text_embedding", "model": told["model"], "text_column": "text"}],
        },
    )
