"""What an inference engine counts of its work, and the function of a batch of a model that such an engine answers.

vLLM serves its counters, from the server's start, in the format of Prometheus.
"""

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome

COUNTERS = {  # vLLM's counter -> its name here; a hit is a token that was in the cache of prefixes
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generated_tokens",
    "vllm:prefix_cache_queries_total": "prefix_tokens",
    "vllm:prefix_cache_hits_total": "cached_tokens",
    "vllm:num_preemptions_total": "preemptions",
}
ANSWER_SECONDS = 5


@dataclass(frozen=True)
class EnginePredict:
    """The function of a batch, by an engine whose `counters` can be read at any time.

    `models` are the names of all models that the engine answers, if it may be more than one.
    """

    predict: Predict
    counters: Callable[[], Mapping[str, float]]
    engine: str = field(default_factory=lambda: uuid.uuid4().hex)
    models: Sequence[str] = ()

    def __call__(self, batch: Batch) -> dict[str, Any] | Outcome:
        return self.predict(batch)


def read_counters(url: str) -> dict[str, float]:
    """Return the sums of the counters that the server at `url` has; none if it does not answer with counters."""
    import httpx
    from prometheus_client.parser import text_string_to_metric_families

    counters: dict[str, float] = {}
    try:
        text = httpx.get(f"{url}/metrics", timeout=ANSWER_SECONDS, trust_env=False).raise_for_status().text
    except httpx.HTTPError:
        return counters
    with contextlib.suppress(ValueError):  # another page
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if name := COUNTERS.get(sample.name):
                    counters[name] = counters.get(name, 0) + sample.value
    return counters
