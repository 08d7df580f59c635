"""datatrove's InferenceRunner with its cache of requests and its local checkpoints, over OpenAI's client.

`skip_bad_requests` does not see the status 400 of that client (0.10.1), so the rollout catches the error itself.
"""

import gzip
import json
from typing import Any

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
from datatrove.pipeline.inference.types import InferenceError
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from paid import CONCURRENT, answered, folder, is_default, url


async def rollout(document: Document, generate: Any) -> Any:
    try:
        return await generate({"messages": [{"role": "user", "content": document.text}]})
    except InferenceError:
        if is_default:
            raise
        return None  # then the document is left out


if __name__ == "__main__":
    # On "localhost" and 127.0.0.1 it uses a client of its own, which takes a 429 for an error that ends the task.
    config = InferenceConfig(
        "endpoint",
        "m",
        endpoint_url=url.replace("127.0.0.1", "127.1"),
        api_key="none",
        max_concurrent_generations=CONCURRENT,
    )
    keeps = {} if is_default else {"checkpoints_local_dir": str(folder / "checkpoint"), "skip_bad_requests": True}
    runner = InferenceRunner(
        rollout,
        config,
        JsonlWriter(str(folder / "out"), output_filename="${rank}_chunk_${chunk_index}.jsonl"),
        records_per_chunk=50,
        **keeps,
    )
    reader = JsonlReader(str(folder / "rows"), glob_pattern="*.jsonl", id_key="id")
    LocalPipelineExecutor([reader, runner], logging_dir=str(folder / "logs")).run()
    documents = []
    for file in (folder / "out").iterdir():
        content = file.read_bytes()
        lines = gzip.decompress(content) if file.suffix == ".gz" else content
        documents += [json.loads(line) for line in lines.splitlines()]
    # an id of 0 is not written, so the text names the row
    answered((row["text"].split()[-1], row["metadata"]["rollout_results"][0]["text"]) for row in documents)
