"""Check the results of `make demo` through the documented layout only, and fail if they are wrong."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DEMO = Path(__file__).resolve().parent.parent / ".demo"
PARTITION = "2026-11-19"
IDENTITY = ("rows_out", "rows_filtered", "rows_quarantined")
RECEIPT_KEYS = {
    *("job", "partition", "generation", "status", "rows_in", "rows_resumed", "started_at", "finished_at", "seconds"),
    *("rows_per_second", "stages", "files", "versions", "settings", *IDENTITY),
}
STAGES = {"ingest", "shuffle", "preprocess", "infer", "write"}


def must(true: bool, what: str) -> None:
    if not true:
        sys.exit(f"the demo is wrong: {what}")


def read(folder: Path) -> pa.Table:
    files = sorted(folder.glob("*.parquet"))
    must(bool(files), f"no Parquet file in {folder}")
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)


def read_receipt(folder: Path, counts: dict[str, int]) -> dict:
    receipt = json.loads((folder / "receipt.json").read_text())
    must(receipt.keys() >= RECEIPT_KEYS, f"{folder}: the receipt lacks {RECEIPT_KEYS - receipt.keys()}")
    must(receipt["status"] == "published", f"{folder}: status {receipt['status']}")
    found = {name: receipt[name] for name in counts}
    must(found == counts, f"{folder}: expected {counts}, found {found}")
    must(receipt["rows_in"] == sum(receipt[name] for name in IDENTITY), f"{folder}: rows are not settled once: {found}")
    must(set(receipt["stages"]) == STAGES, f"{folder}: stages {list(receipt['stages'])}")
    must(not (folder / "failure.json").exists(), f"{folder}: expected no failure.json beside the receipt, found one")
    return receipt


def check_digits(again: bool) -> str:
    home = DEMO / "predictions/digits"
    state = home / "_overnight" / f"date={PARTITION}"
    source = DEMO / "digits" / f"date={PARTITION}"
    broken = {"3/truncated.png": "truncated", "7/not-an-image.png": "expected an image"}
    inputs = {str(file.relative_to(source)) for file in source.rglob("*.png")}
    good = inputs - broken.keys()
    counts = {"rows_in": len(inputs), "rows_out": len(good), "rows_filtered": 0, "rows_quarantined": len(broken)}
    generation = read_receipt(state, counts)["generation"]
    rows = read(home / f"date={PARTITION}")
    row_ids = rows["row_id"].to_pylist()
    must(len(row_ids) == len(set(row_ids)) and set(row_ids) == good, "expected each source file once in row_id")
    must("image" not in rows.column_names, "expected no column image, found one")
    parents = [row_id.split("/")[0] for row_id in row_ids]
    must(rows["label"].to_pylist() == parents, "expected the parent folder as label, found another")
    right = sum(a == b for a, b in zip(rows["predicted_label"].to_pylist(), parents, strict=True))
    must(right > 0.9 * len(parents), f"expected an accuracy above 90 %, found {right}/{len(parents)}")
    confidence = np.asarray(rows["confidence"])
    must(bool(((confidence > 0) & (confidence <= 1)).all()), "expected confidences above 0 and up to 1, found others")
    quarantined = {row["row_id"]: row for row in read(state / "quarantine").to_pylist()}
    must(quarantined.keys() == broken.keys(), f"quarantined: {sorted(quarantined)}")
    for row_id, word in broken.items():
        row = quarantined[row_id]
        must(word in row["error_message"] and bool(row["error_type"]), f"{row_id}: reason {row['error_message']!r}")
        must(row["stage"] in STAGES and row["uri"].endswith(row_id), f"{row_id}: stage or uri {row}")
    seen = DEMO / "generation-checked"
    must(not again or seen.read_text() != generation, "--force did not start a new generation")
    seen.write_text(generation)
    return f"{counts}, accuracy {right}/{len(parents)}"


def check_sentences() -> str:
    home = DEMO / "predictions/sentences"
    lines = sum(len(file.read_text().splitlines()) for file in (DEMO / "sentences").glob("*.jsonl"))
    counts = {"rows_in": lines, "rows_out": lines, "rows_filtered": 0, "rows_quarantined": 0}
    read_receipt(home / "_overnight/all", counts)
    rows = read(home)
    must(len(set(rows["row_id"].to_pylist())) == lines, "expected unique row ids, found repeated ones")
    kind = rows.schema.field("embedding").type
    must(kind == pa.list_(pa.float32(), 384), f"expected 384 float32 values per embedding, found {kind}")
    norms = np.linalg.norm(np.stack(rows["embedding"].to_numpy()), axis=1)
    must(bool(np.allclose(norms, 1, atol=1e-4)), f"expected embeddings of norm 1, found {norms.min()} to {norms.max()}")
    return str(counts)


print(f"digits: {check_digits('--again' in sys.argv)}")
print(f"sentences: {check_sentences()}")
