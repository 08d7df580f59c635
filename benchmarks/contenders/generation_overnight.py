"""Overnight's generation of texts. `python generation_overnight.py DATA OUT text_generation|vllm`.

vLLM has an environment of its own, whose Python OVERNIGHT_VLLM_PYTHON names.
"""

import os
import sys

from data import settings
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    model = {"kind": sys.argv[3], "model": told["model"], "max_new_tokens": told["new_tokens"]}
    if sys.argv[3] == "vllm":
        if "OVERNIGHT_VLLM_PYTHON" not in os.environ:
            sys.exit("not run: OVERNIGHT_VLLM_PYTHON names no environment with vLLM")
        model |= {"user": "{text}", "python": os.environ["OVERNIGHT_VLLM_PYTHON"]}
    else:
        model |= {"text_column": "text"}
    model |= told.get("overnight_model", {})
    run(
        out,
        {"name": "benchmark-generation", "source": {"kind": "parquet", "path": told["texts"]}, "inference": [model]},
    )
