"""Chat completion over any endpoint with OpenAI's protocol: OpenAI, Azure, vLLM, llama.cpp, a gateway.

In and out: see chat/settings.py. With both prices there is also `cost` (float64), in the currency of the prices.
"""

from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.infer.chat.remote_chat import RemoteChat
from overnight.tasks.infer.endpoint.settings import MILLION, Service
from overnight.tasks.infer.predictor import Offer, Predict
from overnight.tasks.rows.result import Outcome
from overnight.tasks.storage.location import Location


class OpenAI(Service, RemoteChat):
    """Requests answers from an OpenAI-compatible endpoint."""

    kind: Literal["openai"] = "openai"
    offer: ClassVar[Offer] = Offer(
        "answers to a question about each text, by an endpoint",
        "text",
        "gpt-4o-mini",
        lambda column: {"user": f"{{{column}}}"},
    )
    model: Annotated[str, Field(min_length=1, description="The model's name at the endpoint.")]
    batch: Annotated[
        BatchSettings | None,
        Field(description="Sends the requests through the provider's batch API, which is slower and cheaper."),
    ] = None

    operational: ClassVar[tuple[str, ...]] = ("batch",)

    def body(self, messages: Any) -> dict[str, Any]:
        return self.plain_body(self.model, messages)

    def outputs_made(self) -> list[str]:
        columns = super().outputs_made()
        if self.has_cost():
            columns.append("cost")
        return columns

    def load(self) -> Predict:
        return self.load_with(None)

    def load_with(self, log_place: Location | None) -> Predict:
        return self.asking(self.requests_to_service(log_place))

    def outcome(self, answers: Any) -> Outcome:
        outcome = super().outcome(answers)
        if not self.has_cost():
            return outcome
        input_price = (self.price_per_million_input_tokens or 0) / MILLION
        output_price = (self.price_per_million_output_tokens or 0) / MILLION
        cost = pc.add(
            pc.multiply(outcome.columns["prompt_tokens"], input_price),
            pc.multiply(outcome.columns["completion_tokens"], output_price),
        )
        shares = [1.0 if isinstance(answer, Exception) else answer.price for answer in answers]
        cost = pc.multiply(cost, pa.array(shares, pa.float64()))
        return Outcome({**outcome.columns, "cost": cost}, failed=outcome.failed)
