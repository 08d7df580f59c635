"""Overnight's `decode_audio` and `transcription`."""

from data import settings
from overnight_job import run
from speech import TOKENS

if __name__ == "__main__":
    told, out = settings()
    model = {"kind": "transcription", "model": told["model"], "language": "en", "max_new_tokens": TOKENS}
    model |= told.get("overnight_model", {})
    run(
        out,
        {
            "name": "benchmark-speech",
            "source": {"kind": "audio", "path": told["sounds"]},
            "preprocess": [{"kind": "decode_audio"}],
            "inference": [model],
        },
    )
