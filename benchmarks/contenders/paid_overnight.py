"""Overnight's `kind: openai`, one request a row or in batches; `overnight run`, and the same again after a kill."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import yaml
from paid import CONCURRENT, answered, folder, is_default, mode, url

if __name__ == "__main__":
    model = {"kind": "openai", "model": "m", "base_url": url, "user": "{text}", "max_concurrent_requests": CONCURRENT}
    if mode == "batch":
        model["batch"] = {"rows": 100, "poll_seconds": 1}
    job = {
        "name": "paid",
        "source": {"kind": "jsonl", "path": str(folder / "rows")},
        "inference": [model],
        "sink": {"kind": "parquet", "path": str(folder / "out")},
    }
    if not is_default:
        job["checks"] = {"max_quarantined": 0.05}
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    overnight = Path(sys.executable).with_name("overnight")
    subprocess.run([overnight, "run", file], check=True)
    table = pyarrow.parquet.read_table(folder / "out", columns=["id", "generated_text"])
    answered(zip(table["id"].to_pylist(), table["generated_text"].to_pylist(), strict=True))
