"""The settings of models over HTTP: the requests of a worker, and a service with its address, key, limits and prices.

See client.py for retries and the causes of failures, response_log.py for the reuse of answers after a crash. The key is
the value of an environment variable on the workers: only its name is written anywhere.
"""

import abc
import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, PrivateAttr, field_validator, model_validator

from overnight.tasks.config.masking import hide_variable
from overnight.tasks.errors import JobError
from overnight.tasks.infer.endpoint.account import Account, Exchange, NoAccount
from overnight.tasks.infer.endpoint.client import Body, Dialect, Limits
from overnight.tasks.infer.endpoint.concurrent_requests import Alone, ConcurrentRequests, Grouping
from overnight.tasks.infer.endpoint.earlier_answers import EarlierAnswers, NoEarlier
from overnight.tasks.infer.endpoint.response_log import open_log
from overnight.tasks.infer.endpoint.transport import AUTHORIZATION, Transport
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.reuse.settings import REUSED, Reuse
from overnight.tasks.storage.location import VARIABLE, Location, expand
from overnight.tasks.workers.spending import Amount

MILLION = 1_000_000
TRIES_OF_A_PREVIEW = 4  # in about 4 s, if the endpoint refuses the connection
ROWS_A_CALL = 16  # few: a call ends with its slowest row, and the next call's requests run meanwhile
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
OWN_HEADERS = {"content-type", "content-length", "transfer-encoding", "connection", "host"}  # of the client itself

Url = Annotated[str, Field(pattern=r"^(https?://|\$\{)")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
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
    _exchange: Exchange | None = PrivateAttr(default=None)

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

    def charged_by(self, exchange: Exchange) -> Self:
        """Return this model with an account, whose claims and settlements `exchange` gets."""
        copy = self.model_copy()
        copy._exchange = exchange
        return copy

    def price_of(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0) -> Amount:
        """Return these tokens with their price. A server of the job's own has none."""
        return Amount(prompt_tokens + completion_tokens)

    def most_answer_tokens(self) -> int:
        """Return the most tokens of the answer to one request; 0 for a model that writes no text."""
        return 0

    def rows_per_request(self) -> int:
        """Return the most rows that share a request."""
        return 1

    def paid_for(self, answer: Mapping[str, Any]) -> Amount:
        """Return what an answer cost, by its fields in the log; without tokens, that of the longest answer."""
        prompt, completion = answer.get("prompt_tokens"), answer.get("completion_tokens", 0)  # vectors have none
        if prompt is None or completion is None:
            prompt, completion = 0, self.most_answer_tokens()
        amount = self.price_of(prompt, completion, answer.get("cached_tokens") or 0)
        return replace(amount, cost=amount.cost * answer.get("price", 1))

    @abc.abstractmethod
    def protocol(self) -> Dialect[Any]:
        """Return the protocol of the endpoint."""

    def key_header(self) -> str:
        """Return the name of the header that has the key."""
        return AUTHORIZATION

    def grouping(self) -> Grouping[Any] | None:
        """Return how several rows share a request; None if each row has its own."""
        return None

    def is_drawn(self, body: Body) -> bool:
        """Return True if the answers to this body, for several rows, are to differ."""
        return False

    @abc.abstractmethod
    def whole_answers(self) -> Callable[[Body, Any], bool]:
        """Return a function that returns True if the answer to a body is complete, and its row does not fail by it."""

    def limits(self) -> Limits:
        """Return the limits of the requests. A server of the job's own has none per minute."""
        return Limits(
            self.max_concurrent_requests,
            self.timeout_seconds,
            self.retry_timeout_seconds,
            self.max_tries,
            self._gives_up,
        )

    def requests_to(self, url: str, key: str | None, log_place: Location | None) -> ConcurrentRequests[Any]:
        """Return the client of the endpoint at `url`."""
        return self.requests_to_all({url: key}, log_place)

    def requests_to_all(
        self,
        keys: Mapping[str, str | None],
        log_place: Location | None,
        headers: Mapping[str, str] | None = None,
        earlier: NoEarlier[Any] | None = None,
    ) -> ConcurrentRequests[Any]:
        """Return the client of the endpoints at the URLs in `keys`, the preferred one first.

        The directory `log_place` keeps the answers.
        """
        dialect = self.protocol()
        connections = self.max_concurrent_requests
        transports = []
        for url, key in keys.items():
            transports.append(Transport(url, dialect.path, key, headers or {}, connections, self.key_header()))
        return ConcurrentRequests(
            dialect,
            transports,
            self.limits(),
            open_log(log_place),
            grouping=self.grouping() or Alone(),
            earlier=earlier or NoEarlier(),
            account=Account(self._exchange) if self._exchange else NoAccount(),
            price_of=self.price_of,
        )


class Service(RemoteModel):
    """The settings of a model at an address. Limits per minute apply to the whole run."""

    base_url: Annotated[
        Url | Annotated[list[Url], Field(min_length=1)],
        Field(
            description="The endpoint's URL, without /chat/completions. Or a list: the next one answers while one is "
            "down or refuses its key."
        ),
    ] = "https://api.openai.com/v1"
    api_key_env: Annotated[
        Variable | list[Variable | None] | None,
        Field(
            description="The environment variable on the workers that has the key. Or a list, with one for each URL.",
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
        PositiveInt | Literal["auto"] | None,
        Field(
            description="The limit for the whole run, repeated tries included. auto: as the headers of the endpoint's "
            "answers allow."
        ),
    ] = None
    tokens_per_minute: Annotated[
        PositiveInt | Literal["auto"] | None,
        Field(description="The limit for the whole run, prompts and answers together; auto: as for requests."),
    ] = None
    price_per_million_input_tokens: Price = None
    price_per_million_output_tokens: Price = None
    price_per_million_cached_tokens: Annotated[
        float | None,
        Field(ge=0, description="The price of a million tokens of prompts that the endpoint had in its cache."),
    ] = None

    reuse: Annotated[
        Reuse | None,
        Field(description="Takes the answers to equal requests from earlier runs, and keeps new ones for later."),
    ] = None

    operational: ClassVar[tuple[str, ...]] = (
        *("api_key_env", "headers", "requests_per_minute", "tokens_per_minute", "reuse"),
        *("price_per_million_input_tokens", "price_per_million_output_tokens", "price_per_million_cached_tokens"),
    )

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, url: str | list[str]) -> str | list[str]:
        urls = as_list(url)
        if any("@" in item for item in urls):
            raise ValueError("expected a URL without user and password; name a variable in api_key_env")
        if len({*urls}) < len(urls):
            raise ValueError("expected each URL once")
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
    def _each_url_has_a_key(self) -> Self:
        names, urls = self.api_key_env, as_list(self.base_url)
        if isinstance(names, list) and len(names) != len(urls):
            raise ValueError(f"api_key_env: expected one for each of the {len(urls)} URLs, found {len(names)}")
        if isinstance(names, str) and len(urls) > 1:
            raise ValueError("api_key_env: expected a list, because each URL has a key of its own. Write null for none")
        return self

    @model_validator(mode="after")
    def _key_is_named_once(self) -> Self:
        if any(as_list(self.api_key_env)) and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: api_key_env already sends the header Authorization. Leave one of them out")
        return self

    def requests_to_service(self, log_place: Location | None) -> ConcurrentRequests[Any]:
        """Return the client of the service, with this worker's share of the limits per minute."""
        keys, headers = self.access()
        return self.requests_to_all(keys, log_place, headers, self.earlier_answers(log_place))

    def limits(self) -> Limits:
        return replace(
            super().limits(),
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            workers=self.workers if isinstance(self.workers, int) else self.workers[1],
        )

    def access(self) -> tuple[dict[str, str | None], dict[str, str]]:
        """Return the key of each URL, and the headers, with the variables of this process filled in."""
        urls, names = as_list(self.base_url), as_list(self.api_key_env)
        names += [None] * (len(urls) - len(names))
        keys = {expand(url): _key(name) for url, name in zip(urls, names, strict=True)}
        return keys, {name: _header(name, value) for name, value in self.headers.items()}

    def earlier_answers(self, log_place: Location | None) -> NoEarlier[Any]:
        if self.reuse is None:
            return NoEarlier()
        log = open_log(log_place and log_place.parent / f"{log_place.name}{REUSED}")
        address = f"{self._expanded_urls()} {getattr(self, 'model', '')}"  # TEI's requests do not have the model
        return EarlierAnswers(self.reuse, self.protocol(), address, self.is_drawn, self.whole_answers(), log)

    def addresses(self) -> dict[str, str]:
        with contextlib.suppress(JobError):  # a variable that only the workers have
            return {"base_url": self._expanded_urls()}
        return {}

    def _expanded_urls(self) -> str:
        return " ".join(expand(url).partition("?")[0].rstrip("/") for url in as_list(self.base_url))

    def price_of(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0) -> Amount:
        input_price, output_price = self.price_per_million_input_tokens, self.price_per_million_output_tokens
        cost = prompt_tokens * (input_price or 0) + completion_tokens * (output_price or 0)
        if self.price_per_million_cached_tokens is not None:
            cost += cached_tokens * (self.price_per_million_cached_tokens - (input_price or 0))
        return Amount(prompt_tokens + completion_tokens, cost / MILLION)

    def has_cost(self) -> bool:
        """Return True if each row has its cost. A model that writes no text needs only the price of its input."""
        has_output_price = self.price_per_million_output_tokens is not None or not self.most_answer_tokens()
        return self.price_per_million_input_tokens is not None and has_output_price


def as_list(value: Any) -> list[Any]:
    """Return the values of a setting that is one value or a list."""
    return list(value) if isinstance(value, list) else [value]


def _key(variable: str | None) -> str | None:
    """Return the key in an environment variable."""
    if variable is None:
        return None
    hide_variable(variable)
    key = os.environ.get(variable, "").strip()
    if not _is_printable(key):
        problem = "is not a valid key" if key else "is not set where the workers run"
        raise JobError(f"api_key_env: the environment variable {variable} {problem}. Set it.", "infer")
    return key


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
