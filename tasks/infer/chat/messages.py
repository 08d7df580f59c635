"""The messages of each row: from templates and parts, from examples, or from conversations.

A message is a dict with `role` and `content`. Content is a text, or a list of parts. These are
`{"type": "text", "text": ...}`, `{"type": "image", "image": value}` and
`{"type": "audio", "audio": value}`, with the value of the row's column. A conversation may have
other parts, such as `image_url`, and other keys, such as `tool_calls`: they stay as they are.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from overnight.tasks.config.settings import AdjustableText, Settings
from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.prompts import filled, placeholders
from overnight.tasks.infer.predictor import Batch

Message = dict[str, Any]
MEDIA = ("image", "audio")
SYSTEM = ("system", "developer")  # roles


class Part(Settings):
    """One part of a message: a text with {column} for values, or a column of images or sounds."""

    text: Annotated[AdjustableText | None, Field(min_length=1, description="A text with {column} for values.")] = None
    image: Annotated[
        AdjustableText | None,
        Field(min_length=1, description="A column of images: arrays, bytes of files, or URLs."),
    ] = None
    audio: Annotated[
        AdjustableText | None, Field(min_length=1, description="A column with the bytes of WAV or MP3 files.")
    ] = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        kinds = [name for name in ("text", *MEDIA) if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError(
                f"expected one of text, image and audio in a part, found {' and '.join(kinds) or 'none'}. Write a part "
                "for each"
            )
        return self

    @property
    def kind(self) -> str:
        return next(name for name in ("text", *MEDIA) if getattr(self, name) is not None)

    @property
    def column(self) -> str | None:
        """Return the column of the image or the sound; None for a text."""
        return self.image or self.audio


class Example(Settings):
    """A question and its answer, which the model sees before the row's own message."""

    user: Annotated[AdjustableText, Field(min_length=1, description="The user's message, as it is.")]
    assistant: Annotated[AdjustableText, Field(min_length=1, description="Its answer, as it is.")]


Content = AdjustableText | Annotated[list[Part], Field(min_length=1)]


def parts_of(content: Content | None) -> list[Part]:
    """Return the parts of a message in a job file; a text is one part."""
    if content is None or isinstance(content, str):
        return [Part.model_construct(text=content or "")]
    return content


def text_columns(content: Content | None, setting: str) -> list[str]:
    """Return the columns whose values become text. A `ValueError` names `setting`."""
    columns: list[str] = []
    for part in parts_of(content):
        columns += placeholders(part.text or "", setting)
    return list(dict.fromkeys(columns))


def media_columns(content: Content | None) -> list[str]:
    """Return the columns with images and sounds."""
    return [part.column for part in parts_of(content) if part.column]


def contents(content: Content, batch: Batch, setting: str) -> list[str | list[Message]]:
    """Return the content of each row's message. A row without a value is a `RowError`."""
    if isinstance(content, str):
        return list(filled(content, batch, setting))
    columns = [_values(part, batch, setting) for part in content]
    return [list(parts) for parts in zip(*columns, strict=True)]


def _values(part: Part, batch: Batch, setting: str) -> Iterator[Message]:
    if part.text is not None:
        for text in filled(part.text, batch, setting):
            yield {"type": "text", "text": text}
        return
    assert part.column
    for value in batch[part.column]:
        if is_missing(value):
            expected = f"{part.column}: expected a value for the {part.kind} of {setting}"
            raise RowError(f"{expected}, found none.")
        yield {"type": part.kind, part.kind: value}


def is_missing(value: Any) -> bool:
    """Return True for None and NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def conversation(value: Any, column: str) -> list[Message]:
    """Return the messages in a list of structs, or in JSON. Raise `RowError` without messages."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            excerpt = str(error)[:100]
            raise RowError(f"{column}: expected messages as JSON, found other text: {excerpt}.") from None
    else:
        value = without_nulls(value)
    if isinstance(value, Mapping):
        if value.get("tools"):
            raise RowError(f"{column}: expected messages alone, found tools beside them. Set tools in the job file.")
        value = value.get("messages")
    if not isinstance(value, list) or not value:
        raise RowError(f"{column}: expected a list of messages, found {_shown(value)}.")
    return [_message(message, f"{column}[{number}]") for number, message in enumerate(value)]


def _message(value: Any, label: str) -> Message:
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        keys = f"the keys {', '.join(value)}" if isinstance(value, Mapping) else _shown(value)
        raise RowError(f"{label}: expected a message with role and content, found {keys}.")
    message = dict(value)
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)  # servers refuse an empty list
        if not isinstance(message.get("content"), str | list):
            excerpt = _shown(message.get("content"))
            raise RowError(f"{label}: expected a text or parts as content, found {excerpt}.")
    message.setdefault("content", None)
    return message


def without_nulls(value: Any) -> Any:
    """Return a value without null fields, which Arrow adds if only other rows have a field."""
    if isinstance(value, Mapping):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return list(map(without_nulls, value)) if isinstance(value, list) else value


def text_of(content: Any) -> Any:
    """Return the text of a content, its parts in lines. Raise `RowError` for other parts."""
    if not isinstance(content, list):
        return content
    for part in content:
        kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text":
            raise RowError(
                f"messages: expected texts, found a part of type {kind}: this kind of model takes no other. Use "
                "kind: image_captioning, openai or vllm."
            )
    return "\n".join(str(part.get("text", "")) for part in content)


def split_system(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Return the text of the system's messages, and the messages of the user and the assistant.

    Raise `RowError` for tools and other roles, which only chat completions have.
    """
    system, dialogue = [], []
    for message in messages:
        role = message["role"]
        if role in SYSTEM:
            system.append(text_of(message["content"]))
        elif role in ("user", "assistant") and not message.get("tool_calls"):
            dialogue.append(message)
        else:
            raise RowError(
                f"messages: expected texts of system, user and assistant, found a message of {role} with a tool: "
                "this dialect does not send such messages."
            )
    return "\n".join(system), dialogue


def has_system(messages: list[Message]) -> bool:
    return any(message["role"] in SYSTEM for message in messages)


def _shown(value: Any) -> str:
    return "none" if value is None else f"{type(value).__name__} {value!r:.80}"
