"""Chat completion over any endpoint with OpenAI's protocol: OpenAI, Azure, vLLM, llama.cpp, a gateway.

In and out: see chat/settings.py. With both prices there is also `cost` (float64), in the currency of
the prices. Limits per minute apply to the whole run. The key is the value of an environment variable
on the workers: only its name is written anywhere.
"""

import os
import re
from typing import Annotated, Any, ClassVar, Literal

import pyarrow.compute as pc
from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.config.masking import hide_variable
from overnight.tasks.errors import JobError
from overnight.tasks.infer.chat.remote_chat import RemoteChat
from overnight.tasks.infer.predictor import Offer, Predict
from overnight.tasks.rows.result import Outcome
from overnight.tasks.storage.location import VARIABLE, Location, expand

MILLION = 1_000_000
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
OWN_HEADERS = {"content-type", "content-length", "transfer-encoding", "connection", "host"}  # of the client itself

Price = Annotated[
    float | None, Field(ge=0, description="The price of a million tokens. With both prices each row has its cost.")
]


class OpenAI(RemoteChat):
    """Requests answers from an OpenAI-compatible endpoint."""

    kind: Literal["openai"] = "openai"
    offer: ClassVar[Offer] = Offer(
        "answers to a question about each text, by an endpoint",
        "text",
        "gpt-4o-mini",
        lambda column: {"user": f"{{{column}}}"},
    )
    model: Annotated[str, Field(min_length=1, description="The model's name at the endpoint.")]
    base_url: Annotated[
        str, Field(pattern=r"^(https?://|\$\{)", description="The endpoint's URL, without /chat/completions.")
    ] = "https://api.openai.com/v1"
    api_key_env: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
            description="The environment variable on the workers that has the key.",
            examples=["OPENAI_API_KEY"],
        ),
    ] = None
    headers: Annotated[
        dict[str, str],
        Field(
            description="Further headers of each request, such as a gateway's key. Each value names an environment "
            "variable of the workers in ${...}.",
            examples=[{"api-key": "${AZURE_OPENAI_KEY}"}],
        ),
    ] = {}
    workers: Annotated[
        PositiveInt | tuple[PositiveInt, PositiveInt],
        Field(description="Processes that send requests: a number, or [min, max]. One is enough: it mostly waits."),
    ] = 1
    requests_per_minute: Annotated[
        PositiveInt | None, Field(description="The limit for the whole run, repeated tries included.")
    ] = None
    tokens_per_minute: Annotated[
        PositiveInt | None, Field(description="The limit for the whole run, prompts and answers together.")
    ] = None
    price_per_million_input_tokens: Price = None
    price_per_million_output_tokens: Price = None

    operational: ClassVar[tuple[str, ...]] = (
        *("api_key_env", "headers", "requests_per_minute", "tokens_per_minute"),
        *("price_per_million_input_tokens", "price_per_million_output_tokens"),
    )

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, url: str) -> str:
        if "@" in url:
            raise ValueError("expected a URL without user and password; name a variable in api_key_env")
        return url

    @field_validator("headers")
    @classmethod
    def _names_variables(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not HEADER.fullmatch(name) or name.lower() in OWN_HEADERS:
                raise ValueError(f"expected the name of a header that the client does not set itself, found {name!r}")
            if not re.search(r"\$\{\w+\}", value):
                raise ValueError(
                    f"{name}: expected an environment variable in the value, such as ${{GATEWAY_KEY}}, found none: the "
                    "job file is stored with the results, and must have no secret"
                )
        if len({name.lower() for name in headers}) < len(headers):
            raise ValueError("expected each header once; names that differ only in case are the same header")
        return headers

    @model_validator(mode="after")
    def _key_is_named_once(self) -> "OpenAI":
        if self.api_key_env and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: api_key_env already sends the header Authorization. Leave one of them out")
        return self

    def body(self, messages: Any) -> dict[str, Any]:
        return self.plain_body(self.model, messages)

    def outputs_made(self) -> list[str]:
        columns = super().outputs_made()
        if self._has_cost():
            columns.append("cost")
        return columns

    def load(self) -> Predict:
        return self.load_with(None)

    def load_with(self, log_place: Location | None) -> Predict:
        workers = self.workers if isinstance(self.workers, int) else self.workers[1]
        requests, tokens = self.requests_per_minute, self.tokens_per_minute
        return self.asking(
            expand(self.base_url),
            self._key(),
            log_place,
            requests and requests / workers,
            tokens and tokens / workers,
            {name: _header(name, value) for name, value in self.headers.items()},
        )

    def _key(self) -> str | None:
        if self.api_key_env is None:
            return None
        hide_variable(self.api_key_env)
        key = os.environ.get(self.api_key_env, "").strip()
        if not _is_printable(key):
            problem = "is not a valid key" if key else "is not set where the workers run"
            raise JobError(f"api_key_env: the environment variable {self.api_key_env} {problem}. Set it.", "infer")
        return key

    def _has_cost(self) -> bool:
        return None not in (self.price_per_million_input_tokens, self.price_per_million_output_tokens)

    def outcome(self, answers: Any) -> Outcome:
        outcome = super().outcome(answers)
        if not self._has_cost():
            return outcome
        input_price = (self.price_per_million_input_tokens or 0) / MILLION
        output_price = (self.price_per_million_output_tokens or 0) / MILLION
        cost = pc.add(
            pc.multiply(outcome.columns["prompt_tokens"], input_price),
            pc.multiply(outcome.columns["completion_tokens"], output_price),
        )
        return Outcome({**outcome.columns, "cost": cost}, failed=outcome.failed)


def _header(name: str, value: str) -> str:
    """Return the value of a header with its variables filled in."""
    for variable in VARIABLE.findall(value):
        hide_variable(variable)
    text = expand(value).strip()
    if not _is_printable(text):
        raise JobError(f"headers: {name}: the variables of {value} give no valid value of a header. Set them.", "infer")
    return text


def _is_printable(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()
