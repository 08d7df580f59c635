"""Text generation with any language model: causal ones continue, encoder-decoders (T5, BART) answer.

In: `text_column`, and the other columns that `prompt` names. Out: `generated_text`, only the new text, without special
tokens; with `reasoning` also `reasoning`, see chat/answer.py. No chat template is applied. Several texts of a row are a
list, the likeliest of a beam search first; the first is the text of `num_return_sequences: 1`.
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.infer.chat.answer import Choice, begins_reasoning, column_of, texts_of
from overnight.tasks.infer.chat.prompts import as_texts, filled, placeholders, texts
from overnight.tasks.infer.huggingface.generation import Generation, Sampling
from overnight.tasks.infer.huggingface.saved_model import GeneratingModel
from overnight.tasks.infer.predictor import Batch, Offer, Predict


class TextGeneration(GeneratingModel):
    """Generates text from a prompt, by causal models and encoder-decoders."""

    kind: Literal["text_generation"] = "text_generation"
    offer: ClassVar[Offer] = Offer(
        "texts made of texts: summaries, answers",
        "text",
        "facebook/bart-large-cnn",
        lambda column: {"text_column": column},
        architecture="bart",
    )
    text_column: Annotated[str, Field(description="The column that holds the texts.")]
    prompt: Annotated[
        AdjustableText | None, Field(description="The prompt, with {column} for values; default: the text alone.")
    ] = None
    max_new_tokens: Annotated[PositiveInt, Field(description="The longest new text, in tokens.")] = 128
    num_beams: Annotated[PositiveInt, Field(description="The texts that a beam search keeps; 1: no search.")] = 1

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
        return self

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

    def outputs_made(self) -> list[str]:
        return ["generated_text", "reasoning"] if self.reasoning else ["generated_text"]

    def load(self) -> Predict:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

        checkpoint = self.checkpoint()
        auto_class, padding_side = AutoModelForCausalLM, "left"
        if checkpoint.load(AutoConfig).is_encoder_decoder:
            auto_class, padding_side = AutoModelForSeq2SeqLM, "right"
        tokenizer = checkpoint.load(AutoTokenizer, padding_side=padding_side)
        model, device = self.load_on_devices(checkpoint, auto_class)
        generation = Generation(checkpoint, tokenizer, model, self.max_new_tokens)
        sampling = Sampling(self.temperature, self.seed)
        draws, best = self.num_return_sequences, 1
        if not self.temperature:
            draws, best = best, draws

        def predict(batch: Batch) -> dict:
            prompts = texts(batch[self.text_column], self.text_column)
            if self.prompt is not None:
                prompts = filled(self.prompt, batch)
            tokens = tokenizer(prompts, padding=True, return_tensors="pt").to(device)
            inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
            noises = sampling.noises(batch, prompts, device, draws)
            columns: dict[str, list[Any]] = {name: [] for name in self.outputs_made()}
            for prompt, row in zip(prompts, generation.run(inputs, noises, self.num_beams, best), strict=True):
                is_begun = begins_reasoning(prompt)
                choices = [Choice(text, None, is_begun=is_begun) for text in generation.texts(row)]
                for name, values in texts_of(choices, self.reasoning).items():
                    columns[name].append(values)
            return {name: column_of(rows, pa.string(), self.num_return_sequences) for name, rows in columns.items()}

        return predict
