"""Transcription with any speech model of transformers that works like Whisper.

In: `audio`, float32 of shape 1 x samples, and `sampling_rate`, as `decode_audio` makes them, at most as long as one
model input, which is 30 s for Whisper. Out: `transcription` (string, without special tokens or timestamps).
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint
from overnight.tasks.infer.huggingface.media import channel, require_rate
from overnight.tasks.infer.huggingface.saved_model import PretrainedPredictor
from overnight.tasks.infer.predictor import Batch, Offer, Predict


class Transcription(PretrainedPredictor):
    """Transcribes speech."""

    kind: Literal["transcription"] = "transcription"
    offer: ClassVar[Offer] = Offer(
        "transcripts of speech (Whisper)",
        "audio",
        "openai/whisper-small",
        lambda column: {"language": None},  # the model finds it
        architecture="whisper",
    )
    language: Annotated[
        AdjustableText | None,
        Field(description="The language of the speech, for example en; default: the model finds it for each row."),
    ] = None
    task: Annotated[Literal["transcribe", "translate"], Field(description="translate: translates into English.")] = (
        "transcribe"
    )
    max_new_tokens: Annotated[
        PositiveInt | None, Field(description="The longest text of a row, in tokens; default: the model's own limit.")
    ] = None

    def inputs(self) -> list[str]:
        return ["audio", "sampling_rate"]

    def outputs_made(self) -> list[str] | None:
        return ["transcription"]

    def load(self) -> Predict:
        import torch
        from transformers import AutoFeatureExtractor, AutoModelForSpeechSeq2Seq, AutoTokenizer

        device = self.torch_device()
        checkpoint = self.checkpoint()
        extractor = checkpoint.load(AutoFeatureExtractor)
        tokenizer = checkpoint.load(AutoTokenizer)
        model, _ = checkpoint.weights(AutoModelForSpeechSeq2Seq, self.dtype)
        model = model.to(device)
        options = self._options(checkpoint, model)

        def predict(batch: Batch) -> dict:
            require_rate(batch["sampling_rate"], extractor.sampling_rate, "transcription")
            sounds = []
            for sound in batch["audio"]:
                sounds.append(_samples(sound, extractor.n_samples, extractor.sampling_rate))
            features = extractor(
                sounds, sampling_rate=extractor.sampling_rate, return_tensors="pt", device=str(device)
            ).input_features
            with torch.inference_mode():
                tokens = model.generate(features.to(device, model.dtype), do_sample=False, num_beams=1, **options)
            return {"transcription": tokenizer.batch_decode(tokens, skip_special_tokens=True)}

        return predict

    def _options(self, checkpoint: Checkpoint, model: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"return_timestamps": False}
        if self.max_new_tokens:
            options["max_new_tokens"] = self.max_new_tokens
        languages = getattr(model.generation_config, "lang_to_id", None) or {}
        if not getattr(model.generation_config, "is_multilingual", False):
            if self.task == "translate" or self.language not in (None, "en"):
                raise checkpoint.unusable("it supports English only. Leave out language and task, or use another model")
            return options
        options["task"] = self.task
        if self.language:
            if f"<|{self.language}|>" not in languages:
                names = ", ".join(sorted(name.strip("<|>") for name in languages))
                raise checkpoint.unusable(f"language: expected one of {names}, found {self.language}")
            options["language"] = self.language
        return options


def _samples(sound: np.ndarray | None, most: int, rate: int) -> np.ndarray:
    """Return a row's samples. Raise `RowError` if there are none, or more than the `most` of the model's input."""
    if sound is None:
        raise RowError("audio: expected samples of one channel, found no value.")
    samples = channel(sound, "audio")
    if len(samples) > most:
        raise RowError(
            f"audio: expected at most {most / rate:g} s, which is the model's input length, found "
            f"{len(samples) / rate:.1f} s. Set chunk_seconds: {most // rate} in decode_audio."
        )
    return samples
