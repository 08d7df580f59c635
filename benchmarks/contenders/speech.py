"""Transcribe sound files by hand, with PyAV and transformers, for contenders without an engine of their own."""

import io
from typing import Any

import numpy as np

RATE, TOKENS = 16_000, 16


def decoded(content: bytes) -> np.ndarray:
    """Return float32 samples of one channel, decoded and resampled as in PyAV's documentation."""
    import av

    resampler = av.AudioResampler(format="fltp", layout="mono", rate=RATE)
    with av.open(io.BytesIO(content)) as container:
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray() for frame in [*frames, *resampler.resample(None)]], axis=1)[0]


class Whisper:
    """A Whisper of transformers with a given number of threads."""

    def __init__(self, told: dict[str, Any], threads: int | None = None) -> None:
        import torch
        from transformers import AutoFeatureExtractor, AutoModelForSpeechSeq2Seq, AutoTokenizer

        if threads:
            torch.set_num_threads(threads)
        self.extractor = AutoFeatureExtractor.from_pretrained(told["model"])
        self.tokenizer = AutoTokenizer.from_pretrained(told["model"])
        self.model = AutoModelForSpeechSeq2Seq.from_pretrained(told["model"]).eval().to(told.get("device", "cpu"))

    def __call__(self, sounds: list[np.ndarray]) -> list[str]:
        import torch

        features = self.extractor(sounds, sampling_rate=RATE, return_tensors="pt").input_features.to(self.model.device)
        with torch.inference_mode():
            made = self.model.generate(features, language="en", max_new_tokens=TOKENS, return_timestamps=False)
        return list(self.tokenizer.batch_decode(made, skip_special_tokens=True))
