"""Chat completion over any endpoint with OpenAI's protocol: OpenAI, Azure, vLLM, llama.cpp, a gateway.

In and out: see chat/settings.py. With both prices there is also `cost` (float64), in the currency of the prices.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.infer.chat.answer_form import AnswerForm
from overnight.tasks.infer.chat.anthropic_messages import VERSION, AnthropicMessages
from overnight.tasks.infer.chat.chat_completions import ChatDialect
from overnight.tasks.infer.chat.gemini_content import GeminiContent
from overnight.tasks.infer.chat.messages import parts_of
from overnight.tasks.infer.chat.remote_chat import RemoteChat
from overnight.tasks.infer.chat.request_fields import FAMILIES, RequestFields
from overnight.tasks.infer.endpoint.settings import Service, as_list
from overnight.tasks.infer.predictor import Offer, Predict
from overnight.tasks.rows.result import Outcome
from overnight.tasks.storage.location import Location

TOKENS = ("prompt_tokens", "completion_tokens")
ONLY_OF_COMPLETIONS = ("num_return_sequences", "tools", "logprobs", "label_scores")
ADDRESSES = {  # of the providers whose own APIs are dialects
    "anthropic": "https://api.anthropic.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
}
NOT_IN_OWN_DIALECTS = {
    "anthropic": (*ONLY_OF_COMPLETIONS, "temperature", "top_p", "seed"),
    "gemini": (*ONLY_OF_COMPLETIONS, "repairs"),
}


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

    dialect: Annotated[
        Literal["any", "openai", "mistral", "openrouter", "vllm", "anthropic", "gemini"],
        Field(
            description="The family of the server, which has fields of its own: openai (and Azure) sends "
            "max_completion_tokens and strict schemas. any: what nearly all servers take. anthropic and gemini send "
            "the requests of these providers' own APIs."
        ),
    ] = "any"

    @model_validator(mode="after")
    def _batches_have_one_place(self) -> Self:
        if self.batch and len(as_list(self.base_url)) > 1:
            raise ValueError("batch: expected one base_url, found a list. Leave out the others")
        provider = self.batch.dialect if self.batch else self.dialect
        if self.by_row.model and (provider == "gemini" or (self.batch and provider == "mistral")):
            raise ValueError(f"by_row: expected no model: requests to {provider} are for one model. Leave out model")
        return self

    @model_validator(mode="after")
    def _own_dialects_fit(self) -> Self:
        """Refuse what the requests of a provider's own API do not have."""
        batches = self.batch.dialect if self.batch else self.dialect
        if batches != self.dialect and {batches, self.dialect} & {*ADDRESSES}:
            raise ValueError(
                f"batch: expected the same dialect as that of the requests, found {batches} beside {self.dialect}. "
                "Set both to the provider's"
            )
        if self.dialect not in ADDRESSES:
            return self
        if "base_url" not in self.model_fields_set:
            raise ValueError(f"base_url: expected that of the provider. Set base_url: {ADDRESSES[self.dialect]}")
        for name in NOT_IN_OWN_DIALECTS[self.dialect]:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: the requests of dialect: {self.dialect} do not have this. Leave it out")
        if self.dialect == "anthropic" and {"temperature", "seed"} & {*self.by_row.columns()}:
            raise ValueError("by_row: expected no temperature and seed, which Anthropic's API does not have")
        if self.dialect == "anthropic" and any(part.audio for part in (*parts_of(self.system), *parts_of(self.user))):
            raise ValueError("user: expected texts and images, found audio: Anthropic's messages have no sounds")
        return self

    def request_fields(self) -> RequestFields:
        return FAMILIES[self.dialect]

    def protocol(self) -> ChatDialect:
        if self.dialect == "anthropic":
            return AnthropicMessages()
        return GeminiContent(self.model) if self.dialect == "gemini" else super().protocol()

    def key_header(self) -> str:
        return self.request_fields().key_header

    def access(self) -> tuple[dict[str, str | None], dict[str, str]]:
        keys, headers = super().access()
        return keys, {**VERSION, **headers} if self.dialect == "anthropic" else headers

    def body(self, messages: Any) -> dict[str, Any]:
        return self.plain_body(self.model, messages)

    def answer_fields(self, form: AnswerForm) -> dict[str, Any]:
        """Put choices into a JSON schema, which more endpoints support; scores of labels need the plain text."""
        fields = super().answer_fields(form)
        if fields or form.choices is None or self.label_scores or self.dialect in ADDRESSES:
            return fields
        schema = {"name": "answer", "schema": form.choice_schema(), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}

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
        tokens = zip(*(outcome.columns[name].to_pylist() for name in TOKENS), answers, strict=True)
        cost = pa.array([self._cost(*counts) for counts in tokens], pa.float64())
        return Outcome({**outcome.columns, "cost": cost}, failed=outcome.failed)

    def _cost(self, prompt_tokens: int | None, completion_tokens: int | None, answer: Any) -> float | None:
        if prompt_tokens is None or completion_tokens is None:
            return None
        usual = self.price_of(prompt_tokens, completion_tokens, answer.cached_tokens or 0).cost
        return usual * float(answer.price)
