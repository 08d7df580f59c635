"""The common part of chat models that a worker loads with transformers: chat template, random numbers.

See settings.py for columns. With `temperature` 0, decoding is greedy. Above 0, each row draws its
tokens with random numbers of its own, among the tokens that `top_k` and `top_p` leave. A row's answer
never depends on the other rows of the batch, beyond rounding.
"""

import abc
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from overnight.tasks.config.memory_bound import bounded, shortage
from overnight.tasks.config.settings import AdjustableFlag
from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer, begins_reasoning
from overnight.tasks.infer.chat.grammar import LIBRARY, Grammar, of_schema
from overnight.tasks.infer.chat.label_scores import of_log_probabilities
from overnight.tasks.infer.chat.messages import Message
from overnight.tasks.infer.chat.row_settings import rows_by_settings
from overnight.tasks.infer.chat.settings import ChatSettings, ChatTemplateKwargs, TopK
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.generation import Generated, Generation, Sampling
from overnight.tasks.infer.huggingface.saved_model import GeneratingModel
from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome

if TYPE_CHECKING:
    import torch


class LocalChat(GeneratingModel, ChatSettings):
    """Answers chat messages with a model that the worker loads."""

    top_k: TopK = None
    chat_template_kwargs: ChatTemplateKwargs = {}
    constrain: Annotated[
        AdjustableFlag, Field(description="Lets the model write only JSON that fits output_schema, by llguidance.")
    ] = False

    @model_validator(mode="after")
    def _grammar_is_supported(self) -> "LocalChat":
        if self.constrain and self.output_schema is None:
            raise ValueError("constrain: expected an output_schema, which answers have to fit. Set it, or use answer")
        grammar = self.grammar()
        if grammar is None:
            return self
        if self.reasoning:
            raise ValueError(f"reasoning: a model that {grammar.setting} limits writes none. Leave one of them out")
        if problem := grammar.problem:
            raise ValueError(
                f"{grammar.setting}: expected an output_schema that llguidance supports, found {problem}. "
                "Simplify the schema, or leave constrain out"
            )
        return self

    @model_validator(mode="after")
    def _rows_have_one_model(self) -> "LocalChat":
        if self.by_row.model:
            raise ValueError(
                f"by_row: expected no model, found {self.by_row.model}: a worker of kind: {self.kind} loads one "
                "model, without LoRA adapters. Use kind: vllm with by_row_models, or an entry with where for each model"
            )
        return self

    def grammar(self) -> Grammar | None:
        """Return the grammar of the texts that the model may write, or None for all texts."""
        if self.answer:
            return self.answer.as_grammar()
        return of_schema(self.output_schema) if self.constrain and self.output_schema is not None else None

    def libraries(self) -> tuple[str, ...]:
        return (*super().libraries(), LIBRARY) if self.grammar() else super().libraries()

    @abc.abstractmethod
    def shown(self, messages: Sequence[Message]) -> list[Message]:
        """Return a row's messages in the form of the chat template. Raise `RowError` for other media than it takes."""

    @abc.abstractmethod
    def features(
        self, processor: Any, conversations: Sequence[Sequence[Message]], prompts: list[str]
    ) -> Mapping[str, "torch.Tensor"]:
        """Return the model's inputs (N x T) for the rows of a batch, by its tokenizer or processor."""

    def answering(self, checkpoint: Checkpoint, processor: Any, tokenizer: Any, model_class: Any) -> Predict:
        """Load the model, and return the function that answers the messages of a batch."""
        self._refuse_template(checkpoint, processor)
        model, device = self.load_on_devices(checkpoint, model_class)
        generation = Generation(checkpoint, tokenizer, model, self.max_new_tokens, self.grammar(), self.logprobs)
        choices = list((self.answer and self.answer.choices) or ()) if self.label_scores else []
        labels = [generation.tokens_of(checkpoint, choice) for choice in choices]
        # `generate` takes the first two of every model, also if its forward names others, as that of xLSTM
        arguments = {"input_ids", "attention_mask", *inspect.signature(model.forward).parameters}

        def answers_of(batch: Batch, own: Mapping[str, Any]) -> list[Answer]:
            """Return the answers of rows that have the settings `own`."""
            chat = self.model_copy(update={**own})
            limited = generation.limited(chat.max_new_tokens) if own else generation
            conversations = self.conversations(batch)
            prompts = self._prompts(processor, list(map(self.shown, conversations)))
            inputs = {}
            for name, tensor in self.features(processor, conversations, prompts).items():
                if name in arguments:
                    dtype = model.dtype if tensor.is_floating_point() else tensor.dtype
                    inputs[name] = tensor.to(device, dtype)
            sampling = Sampling(chat.temperature, chat.seed, chat.top_p, chat.top_k)
            noises = sampling.noises(batch, prompts, device, self.num_return_sequences)
            rows = limited.run(inputs, noises)
            lengths = inputs["attention_mask"].sum(1).tolist()
            answers = list(map(partial(_answer, generation), rows, lengths, prompts))
            if labels:
                logs = generation.scores(inputs, labels)
                scores = map(partial(of_log_probabilities, choices), logs)
                answers = list(map(_with_scores, answers, scores))
            return answers

        def predict(batch: Batch) -> Outcome:
            if not self.by_row.columns():
                return self.outcome(answers_of(batch, {}))
            rows_of, errors = rows_by_settings(self.by_row, batch, type(self))
            answers: dict[int, Answer | Exception] = dict(errors)
            for settings, rows in rows_of.items():
                part = {name: column[rows] for name, column in batch.items()}
                answers |= zip(rows, answers_of(part, dict(settings)), strict=True)
            return self.outcome([answers[row] for row in range(len(answers))])

        return predict

    def _prompts(self, processor: Any, messages: Sequence[Sequence[Message]]) -> list[str]:
        from jinja2 import TemplateError

        try:
            with bounded(sum(len(str(message)) for row in messages for message in row)):
                prompts: list[str] = processor.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, **self.chat_template_kwargs
                )
        except TemplateError as error:
            if not self.messages:
                raise
            raise RowError(f"{self.messages}: the model's chat template refuses the messages: {error}") from None
        return prompts

    def _refuse_template(self, checkpoint: Checkpoint, processor: Any) -> None:
        """Raise `JobError` if there is no chat template, or it refuses the roles of every row's messages."""
        if not processor.chat_template:
            raise checkpoint.unusable(
                "expected a chat template beside its tokenizer, found none. Use a model tuned for chats, or "
                "kind: text_generation with a prompt"
            )
        names = ["user"] if self.system is None else ["system", "user"]
        if self.examples:
            names += ["assistant", "user"]
        try:
            prompts = self._prompts(processor, [self.shown([{"role": name, "content": "text"} for name in names])])
        except Exception as error:
            roles = " and ".join(names)
            reason = shortage(error) if isinstance(error, MemoryError) else error
            raise checkpoint.unusable(f"its chat template refuses {roles} messages: {reason}") from error
        grammar = self.grammar()
        if grammar and any(map(begins_reasoning, prompts)):
            raise checkpoint.unusable(
                f"{grammar.setting}: expected a prompt before an answer, found one that ends with <think>. "
                "Set chat_template_kwargs: {enable_thinking: false} if the template knows it"
            )


def _answer(generation: Generation, outputs: Sequence[Generated], prompt_tokens: int, prompt: str) -> Answer:
    texts = generation.texts(outputs)
    reasons = [output.finish_reason for output in outputs]
    return Answer(
        texts[0],
        prompt_tokens,
        completion_tokens=sum(output.count for output in outputs),
        finish_reason=reasons[0],
        is_begun=begins_reasoning(prompt),
        others=list(zip(texts[1:], reasons[1:], strict=True)),
        details=[{"mean_logprob": output.mean_logprob} for output in outputs],
        problem=next((output.problem for output in outputs if output.problem), None),
    )


def _with_scores(answer: Answer, scores: Mapping[str, float]) -> Answer:
    return replace(answer, details=[{**answer.details[0], "label_scores": scores}])
