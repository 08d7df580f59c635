"""Ray Data LLM's HTTP processor with retries, in batches of requests, with Ray Data's checkpoint of written rows."""

from typing import Any

import pyarrow.parquet
import ray
from paid import CONCURRENT, answered, folder, is_default, url
from ray.data.checkpoint import CheckpointConfig
from ray.data.llm import HttpRequestProcessorConfig, build_processor


def request(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "payload": {"model": "m", "messages": [{"role": "user", "content": row["text"]}]}}


def answer(row: dict[str, Any]) -> dict[str, Any]:
    choices = row["http_response"].get("choices")  # a refusal is a response like another
    return {"id": row["id"], "answer": choices[0]["message"]["content"] if choices else None}


if __name__ == "__main__":
    ray.init("local", include_dashboard=False, log_to_driver=False)
    retries = {} if is_default else {"max_retries": 6}
    config = HttpRequestProcessorConfig(url=f"{url}/chat/completions", batch_size=CONCURRENT, **retries)
    context = ray.data.DataContext.get_current()
    if not is_default:
        path = str(folder / "checkpoint")
        context.checkpoint_config = CheckpointConfig("id", path, delete_checkpoint_on_success=False)
    rows = ray.data.read_parquet(str(folder / "rows"), file_extensions=["parquet"])
    build_processor(config, preprocess=request, postprocess=answer)(rows).write_parquet(str(folder / "out"))
    table = pyarrow.parquet.read_table(folder / "out")
    answered(zip(table["id"].to_pylist(), table["answer"].to_pylist(), strict=True))
