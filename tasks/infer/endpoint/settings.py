"""The settings of models over HTTP: the requests of a worker, and a service with its address, key, limits and prices.

See client.py for retries and the causes of failures, response_log.py for the reuse of answers after a crash. The key is
the value of an environment variable on the workers: only its name is written anywhere.
"""

import abc
import math
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PositiveInt, PrivateAttr, field_validator, model_validator

from overnight.tasks.config.masking import hide_variable
from overnight.tasks.errors import JobError
from overnight.tasks.infer.endpoint.client import Dialect, Limits
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.response_log import open_log
from overnight.tasks.infer.endpoint.transport import Transport
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.storage.location import VARIABLE, Location, expand

MILLION = 1_000_000
TRIES_OF_A_PREVIEW = 4  # in about 4 s, if the endpoint refuses the connection
ROWS_A_CALL = 16  # few: a call ends with its slowest row, and the next call's requests run meanwhile
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
OWN_HEADERS = {"content-type", "content-length", "transfer-encoding", "connection", "host"}  # of the client itself

ConcurrentRequestsLimit = Annotated[
    PositiveInt,
    Field(
        description="The requests that a worker has under way at the same time.",
        json_schema_extra={"formerly": "requests_at_once"},
    ),
]
Price = Annotated[
    float | None, Field(ge=0, description="The price of a million tokens. With both prices each row has its cost.")
]


class RemoteModel(Predictor):
    """The settings of a model that answers over HTTP, with many concurrent requests."""

    max_concurrent_requests: ConcurrentRequestsLimit = 32
    timeout_seconds: Annotated[
        float, Field(gt=0, description="The time in which the endpoint has to answer a request.")
    ] = 60
    retry_timeout_seconds: Annotated[
        float,
        Field(
            gt=0,
            description="The time for all tries of a row; less than the job's row_timeout_seconds.",
            json_schema_extra={"formerly": "patience_seconds"},
        ),
    ] = 240
    max_tries: Annotated[
        PositiveInt,
        Field(description="The tries of a request before its row is quarantined, if other requests succeed."),
    ] = 8
    extra_body: Annotated[
        dict[str, Any], Field(description="Further fields of each request; null removes a field.")
    ] = {}

    _gives_up: bool = PrivateAttr(default=False)

    operational: ClassVar[tuple[str, ...]] = (
        *("max_concurrent_requests", "timeout_seconds", "retry_timeout_seconds", "max_tries"),
    )

    def forward_batch_size(self) -> int:
        return ROWS_A_CALL if self.batch_size == "auto" else self.batch_size

    def calls_at_once(self) -> int:
        return math.ceil(self.max_concurrent_requests / self.forward_batch_size()) + 1

    def tunes_batch_size(self) -> bool:
        return False

    def needs_warm_up(self) -> bool:
        return False

    def for_preview(self) -> Self:
        copy = self.model_copy(update={"max_tries": min(self.max_tries, TRIES_OF_A_PREVIEW)})
        copy._gives_up = True
        return copy

    @abc.abstractmethod
    def dialect(self) -> Dialect[Any]:
        """Return the protocol of the endpoint."""

    def requests_to(
        self,
        url: str,
        key: str | None,
        log_place: Location | None,
        requests: float | None = None,
        tokens: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ConcurrentRequests[Any]:
        """Return the client of the endpoint at `url`.

        `requests` and `tokens` are limits per minute. The directory `log_place` keeps the answers.
        """
        limits = Limits(
            self.max_concurrent_requests,
            self.timeout_seconds,
            self.retry_timeout_seconds,
            self.max_tries,
            gives_up=self._gives_up,
            requests_per_minute=requests,
            tokens_per_minute=tokens,
        )
        dialect = self.dialect()
        transport = Transport(url, dialect.path, key, headers or {}, self.max_concurrent_requests)
        return ConcurrentRequests(dialect, transport, limits, open_log(log_place))


class Service(RemoteModel):
    """The settings of a model at an address. Limits per minute apply to the whole run."""

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
    def _key_is_named_once(self) -> Self:
        if self.api_key_env and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: api_key_env already sends the header Authorization. Leave one of them out")
        return self

    def requests_to_service(self, log_place: Location | None) -> ConcurrentRequests[Any]:
        """Return the client of the service, with this worker's share of the limits per minute."""
        workers = self.workers if isinstance(self.workers, int) else self.workers[1]
        requests, tokens = self.requests_per_minute, self.tokens_per_minute
        url, key, headers = self.access()
        return self.requests_to(
            url, key, log_place, requests and requests / workers, tokens and tokens / workers, headers
        )

    def access(self) -> tuple[str, str | None, dict[str, str]]:
        """Return the URL, the key and the headers, with the variables of this process filled in."""
        headers = {name: _header(name, value) for name, value in self.headers.items()}
        return expand(self.base_url), self._key(), headers

    def _key(self) -> str | None:
        if self.api_key_env is None:
            return None
        hide_variable(self.api_key_env)
        key = os.environ.get(self.api_key_env, "").strip()
        if not _is_printable(key):
            problem = "is not a valid key" if key else "is not set where the workers run"
            raise JobError(f"api_key_env: the environment variable {self.api_key_env} {problem}. Set it.", "infer")
        return key

    def has_cost(self) -> bool:
        """Return True if the prices are known, so that each row has its cost."""
        return None not in (self.price_per_million_input_tokens, self.price_per_million_output_tokens)


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
