"""Daft's `prompt` on its Ray runner, with a checkpoint of its rows and an idempotent commit of a Delta table."""

import sys

import daft
import ray
from daft.functions import prompt
from paid import CONCURRENT, answered, folder, is_default, rows_of, url

if __name__ == "__main__":
    out = folder / "table"
    provider = daft.ai.openai.provider.OpenAIProvider(base_url=url, api_key="none")
    options = {"use_chat_completions": True, "max_concurrency": CONCURRENT}
    if is_default:
        frame = daft.read_parquet(rows_of("parquet"))
    else:
        ray.init("local", include_dashboard=False, log_to_driver=False)
        daft.set_runner_ray()
        store = daft.CheckpointStore(f"file://{folder}/checkpoint")
        frame = daft.read_parquet(rows_of("parquet"), checkpoint=daft.CheckpointConfig(store, on="id"))
        options["on_error"] = "ignore"
    frame = frame.with_column("answer", prompt(daft.col("text"), provider=provider, model="m", **options))
    if is_default:
        frame.write_parquet(str(out))
        sys.exit()
    frame.write_deltalake(str(out), mode="append", checkpoint=daft.IdempotentCommit(store, idempotence_key="night"))
    table = daft.read_deltalake(str(out)).select("id", "answer").to_pydict()
    answered(zip(table["id"], table["answer"], strict=True))
