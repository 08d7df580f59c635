"""Text generation with any language model: causal ones continue, encoder-decoders (T5, BART) answer.

In: `text_column`, and the other columns that `prompt` names. Out: `generated_text`, only the new text, without special
tokens; with `reasoning` also `reasoning`, see chat/answer.py. No chat template is applied. Several texts of a row are a
list, the likeliest of a beam search first; the first is the text of `num_return_sequences: 1`.
"""

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from overnight.tasks.config.settings import AdjustableFlag, AdjustableText
from overnight.tasks.infer.chat.answer import begins_reasoning, split_reasoning
from overnight.tasks.infer.chat.prompts import as_texts, filled, placeholders, texts
from overnight.tasks.infer.chat.settings import NumberOfTexts, Seed, Temperature
from overnight.tasks.infer.huggingface.device_map import DeviceMap, MaxMemory, load_on_devices, refuse_unreserved
from overnight.tasks.infer.huggingface.generation import Generation
from overnight.tasks.infer.huggingface.per_row_sampling import noise_of
from overnight.tasks.infer.huggingface.predictor import PretrainedPredictor
from overnight.tasks.infer.predictor import Batch, Offer, Predict


def _summary(column: str) -> dict[str, str]:
    """Return the settings for a summary of the column. They have a prompt if the column's name fits into one."""
    settings = {"text_column": column}
    if re.fullmatch(r"\w+", column):
        settings["prompt"] = f"Summarise: {{{column}}}"
    return settings


class TextGeneration(PretrainedPredictor):
    """Generates text from a prompt, by causal models and encoder-decoders."""

    kind: Literal["text_generation"] = "text_generation"
    offer: ClassVar[Offer] = Offer(
        "texts made of texts: summaries, answers",
        "text",
        "Qwen/Qwen2.5-0.5B-Instruct",
        _summary,
        architecture="qwen2",
    )
    text_column: Annotated[str, Field(description="The column that holds the texts.")]
    prompt: Annotated[
        AdjustableText | None, Field(description="The prompt, with {column} for values; default: the text alone.")
    ] = None
    max_new_tokens: Annotated[PositiveInt, Field(description="The longest new text, in tokens.")] = 128
    temperature: Temperature = 0
    num_beams: Annotated[PositiveInt, Field(description="The texts that a beam search keeps; 1: no search.")] = 1
    seed: Seed = 0
    num_return_sequences: NumberOfTexts = 1
    reasoning: Annotated[
        AdjustableFlag,
        Field(description="Puts a model's reasoning (<think>) into the column reasoning, apart from the text."),
    ] = False
    device_map: DeviceMap = None
    max_memory: MaxMemory = None

    operational: ClassVar[tuple[str, ...]] = ("device_map", "max_memory")

    @model_validator(mode="after")
    def _prompt_holds_the_text(self) -> "TextGeneration":
        if self.prompt is not None and self.text_column not in placeholders(self.prompt):
            raise ValueError(f"prompt: expected {{{self.text_column}}} in it, found {self.prompt!r}")
        return self

    @model_validator(mode="after")
    def _settings_go_together(self) -> "TextGeneration":
        if self.temperature and self.num_beams > 1:
            raise ValueError("num_beams: searches for the likeliest text, which needs temperature: 0")
        if not self.temperature and self.num_return_sequences > self.num_beams:
            raise ValueError(
                f"num_return_sequences: expected temperature above 0, or num_beams of at least "
                f"{self.num_return_sequences}, found num_beams: {self.num_beams} and temperature: 0"
            )
        refuse_unreserved(self.device_map, self.accelerators())
        return self

    def libraries(self) -> tuple[str, ...]:
        return ("accelerate",) if self.device_map else ()

    def inputs(self) -> list[str]:
        columns = [self.text_column] if self.prompt is None else placeholders(self.prompt)
        if self.temperature and "row_id" not in columns:
            columns.append("row_id")
        return columns

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        if name in self.prompt_columns() and name != self.text_column:
            return as_texts(column, name)
        return super().given(name, column)

    def prompt_columns(self) -> list[str]:
        return placeholders(self.prompt or "")

    def outputs_made(self) -> list[str] | None:
        return ["generated_text", "reasoning"] if self.reasoning else ["generated_text"]

    def load(self) -> Predict:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

        checkpoint = self.checkpoint()
        is_encoder_decoder = checkpoint.load(AutoConfig).is_encoder_decoder
        tokenizer = checkpoint.load(AutoTokenizer, padding_side="right" if is_encoder_decoder else "left")
        kind = AutoModelForSeq2SeqLM if is_encoder_decoder else AutoModelForCausalLM
        model, device = load_on_devices(checkpoint, kind, self)
        generation = Generation(checkpoint, tokenizer, model, self.max_new_tokens)
        draws, best = self.num_return_sequences, 1
        if not self.temperature:
            draws, best = best, draws

        def predict(batch: Batch) -> dict:
            prompts = texts(batch[self.text_column], self.text_column)
            if self.prompt is not None:
                prompts = filled(self.prompt, batch)
            tokens = tokenizer(prompts, padding=True, return_tensors="pt").to(device)
            inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
            noises = []
            for number in range(draws):
                noises.append(noise_of(batch, prompts, device, self.temperature, self.seed, number=number))
            rows = list(map(generation.texts, generation.run(inputs, noises, self.num_beams, best)))
            if not self.reasoning and self.num_return_sequences == 1:
                return {"generated_text": [text for (text,) in rows]}
            if not self.reasoning:
                return {"generated_text": self._column(rows)}
            answers, reasonings = [], []
            for row, prompt in zip(rows, prompts, strict=True):
                thoughts = [split_reasoning(text, begins_reasoning(prompt)) for text in row]
                answers.append([thought.answer for thought in thoughts])
                reasonings.append([thought.reasoning for thought in thoughts])
            return {"generated_text": self._column(answers), "reasoning": self._column(reasonings)}

        return predict

    def _column(self, rows: Sequence[Sequence[str | None]]) -> pa.Array:
        """Return a row's texts as a list, or its only text."""
        if self.num_return_sequences > 1:
            return pa.array(rows, pa.list_(pa.string()))
        return pa.array([text for (text,) in rows], pa.string())
