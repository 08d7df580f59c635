"""How many instances of a model Daft has: one for each core, or one with the GPU."""

from typing import Any


def workers(told: dict[str, Any]) -> dict[str, Any]:
    return {"max_concurrency": 1, "gpus": 1} if told.get("gpus") else {"max_concurrency": told["cpus"]}
