"""Daft's `prompt` on its Ray runner, with a checkpoint of its rows and an idempotent commit of a Delta table.

With the mode `native`, it is on the native runner and writes Parquet: the checkpoint needs the Ray runner.
"""

import daft
import ray
from daft.ai.openai.provider import OpenAIProvider
from daft.functions import prompt
from paid import answered, folder, is_default, mode, rows_of, url

if __name__ == "__main__":
    out, store = str(folder / "table"), None
    options = {"use_chat_completions": True}
    if not is_default:
        options["on_error"] = "ignore"
    if mode == "online":
        ray.init("local", include_dashboard=False, log_to_driver=False)
        daft.set_runner_ray()
        store = daft.CheckpointStore(f"file://{folder}/checkpoint")
    keeps = {"checkpoint": daft.CheckpointConfig(store, on="id")} if store else {}
    provider = OpenAIProvider(base_url=url, api_key="none")
    frame = daft.read_parquet(rows_of("parquet"), **keeps)
    frame = frame.with_column("answer", prompt(daft.col("text"), provider=provider, model="m", **options))
    if store is None:
        frame.write_parquet(out, write_mode="overwrite")
        table = daft.read_parquet(f"{out}/*.parquet")
    else:
        frame.write_deltalake(out, checkpoint=daft.IdempotentCommit(store, idempotence_key="night"))
        table = daft.read_deltalake(out)
    rows = table.select("id", "answer").to_pydict()
    answered(zip(rows["id"], rows["answer"], strict=True))
