"""The form of an answer that is not JSON: one of several texts, a regular expression, or a grammar."""

import json
from typing import Annotated, Any, cast

from pydantic import Field, model_validator

from overnight.tasks.config.settings import AdjustableText, Settings
from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.grammar import LIBRARY, Grammar, of_choices, of_lark, of_regex

FIELD = "answer"  # of the JSON object in which an endpoint without choices puts one of them


class AnswerForm(Settings):
    """The form that each answer must have: one of `choices`, a text that `regex` matches, or a text of `grammar`."""

    choices: Annotated[
        tuple[Annotated[AdjustableText, Field(min_length=1)], ...] | None,
        Field(min_length=1, description="The answer is one of these texts."),
    ] = None
    regex: Annotated[
        AdjustableText | None,
        Field(min_length=1, description="The whole answer matches this regular expression, without look-around."),
    ] = None
    grammar: Annotated[
        AdjustableText | None,
        Field(min_length=1, description="The answer is a text of this grammar in Lark's syntax, with a rule start."),
    ] = None

    @model_validator(mode="after")
    def _is_one_form(self) -> "AnswerForm":
        names = [name for name, value in self if value is not None]
        if len(names) != 1:
            raise ValueError(
                f"expected one of choices, regex and grammar, found {' and '.join(names) or 'none'}. Set one of them"
            )
        choices = self.choices or ()
        if len(set(choices)) < len(choices) or any(choice != choice.strip() for choice in choices):
            raise ValueError(f"choices: expected different texts without white space around them, found {choices}")
        if problem := self.as_grammar().problem:
            raise ValueError(f"{names[0]}: expected a form that llguidance supports, found {problem}")
        return self

    def libraries(self) -> tuple[str, ...]:
        """Return the library that checks the answers of an endpoint."""
        return () if self.choices else (LIBRARY,)

    def as_grammar(self) -> Grammar:
        """Return the grammar of the answers."""
        if self.choices:
            return of_choices(self.choices)
        return of_regex(self.regex) if self.regex else of_lark(cast(str, self.grammar))

    def choice_schema(self) -> dict[str, Any]:
        """Return the JSON schema of an object whose only field is one of the choices."""
        choice = {"type": "string", "enum": list(self.choices or ())}
        return {"type": "object", "properties": {FIELD: choice}, "required": [FIELD], "additionalProperties": False}

    def value(self, text: str) -> str:
        """Return the answer in a model's text, without white space around it. Raise `RowError` if it does not fit."""
        answer = text.strip()
        if self.choices is None:
            fits, form = self.as_grammar().fits(answer), f"a text of {self.as_grammar().setting}"
        else:
            answer = _field(answer)
            fits, form = answer in self.choices, f"one of {', '.join(map(repr, self.choices))}"
        if not fits:
            raise RowError(f"answer: expected {form:.300}, found {answer[:80]!r}.")
        return answer


def _field(text: str) -> str:
    """Return the choice in a JSON object of `choice_schema`, or the text itself."""
    try:
        return str(json.loads(text)[FIELD])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return text
