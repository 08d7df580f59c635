"""Curator's LLM, one request a row or in batches, with the cache that its guide names for recovery."""

import os
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from paid import CONCURRENT, answered, folder, is_default, mode, rows_of, url

os.environ |= {"CURATOR_CACHE_DIR": str(folder / "cache"), "TELEMETRY_ENABLED": "false", "OPENAI_API_KEY": "none"}
# Its tokenizer is downloaded, unless it is found where LiteLLM, which it installs, has a copy.
litellm = Path(find_spec("litellm").origin).parent
os.environ["TIKTOKEN_CACHE_DIR"] = str(litellm / "litellm_core_utils/tokenizers")

from bespokelabs import curator  # noqa: E402
from datasets import load_dataset  # noqa: E402


class Describe(curator.LLM):
    def prompt(self, input):
        return input["text"]

    def parse(self, input, response):
        return {"id": input["id"], "answer": response}


if __name__ == "__main__":
    settings = {"base_url": url, "max_retries": 3}
    if mode == "batch":
        settings |= {"batch_size": 100, "batch_check_interval": 1}
    else:
        settings |= {"max_concurrent_requests": CONCURRENT, "max_requests_per_minute": 6000}
        settings |= {"max_tokens_per_minute": 1_000_000, "seconds_to_pause_on_rate_limit": 1}
    if not is_default:
        settings["require_all_responses"] = False
    files = sorted(glob(rows_of("jsonl")))
    rows = load_dataset("json", data_files=files, split="train", cache_dir=str(folder / "datasets"))
    model = Describe("gpt-4o-mini", batch=mode == "batch", backend="openai", backend_params=settings)
    result = model(rows).dataset
    answered(zip(result["id"], result["answer"], strict=True))
