"""transformers in a loop over batches of 32 prompts, in one process with all threads."""

import pyarrow as pa
import pyarrow.parquet as pq
from data import settings
from generation import Generate
from progress import note

if __name__ == "__main__":
    told, out = settings()
    generate, table, made = Generate(told), pq.read_table(told["texts"]), []
    for batch in table.to_batches(32):
        made += generate(batch["text"].to_pylist())
        note(len(batch))
    pq.write_table(pa.table({"id": table["id"], "generated_text": made}), out / "results.parquet")
