"""A small random Whisper with a tokenizer of single bytes, and transformers by hand."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoFeatureExtractor,
    AutoModelForSpeechSeq2Seq,
    AutoTokenizer,
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

END, START, TASKS = "<|endoftext|>", "<|startoftranscript|>", ("translate", "transcribe")
LANGUAGES = ("<|en|>", "<|de|>")
OTHERS = ("<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>")


def byte_tokens() -> list[str]:
    """Each byte as the tokenizer writes it: GPT-2's table of printable characters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + place) for place in range(len(others))]


def write_whisper(folder: Path, is_multilingual: bool = True) -> None:
    """A model, its tokenizer and its feature extractor, as `save_pretrained` writes them."""
    tokenizer = WhisperTokenizer(vocab={token: number for number, token in enumerate([*byte_tokens(), END])}, merges=[])
    special = [START, *LANGUAGES, *(f"<|{task}|>" for task in TASKS), *OTHERS]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    number = dict(zip([END, *special], tokenizer.convert_tokens_to_ids([END, *special]), strict=True))
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), number[END])
    ends["decoder_start_token_id"] = number[START]
    torch.manual_seed(0)
    layers = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "init_std": 0.3, **layers, **heads}
    nothing: dict[str, list] = {"suppress_tokens": [], "begin_suppress_tokens": []}
    model = WhisperForConditionalGeneration(WhisperConfig(vocab_size=len(tokenizer), **sizes, **ends, **nothing))
    several = {
        "lang_to_id": {name: number[name] for name in LANGUAGES},
        "task_to_id": {task: number[f"<|{task}|>"] for task in TASKS},
    }
    model.generation_config = GenerationConfig(
        is_multilingual=is_multilingual,
        no_timestamps_token_id=number["<|notimestamps|>"],
        max_length=24,
        **ends,
        **nothing,
        **(several if is_multilingual else {}),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)


@cache
def _loaded(folder: Path) -> tuple[Any, Any, Any]:
    extractor, tokenizer = AutoFeatureExtractor.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return extractor, tokenizer, AutoModelForSpeechSeq2Seq.from_pretrained(folder).eval()


def transcribed(folder: Path, samples: np.ndarray, **settings: str) -> str:
    """One row's text, with plain transformers."""
    extractor, tokenizer, model = _loaded(folder)
    features = extractor(samples.reshape(-1), sampling_rate=16_000, return_tensors="pt").input_features
    with torch.inference_mode():
        made = model.generate(features, return_timestamps=False, **settings)
    return str(tokenizer.batch_decode(made, skip_special_tokens=True)[0])
