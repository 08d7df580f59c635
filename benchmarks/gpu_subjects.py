"""What `gpu.py` measures: models of real size, their data, who runs them, and each model alone.

The weights are random, except MiniLM's. So the speed is real, and the results mean nothing.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import workloads

WORDS, PROMPT_TOKENS, NEW_TOKENS = 32_000, 64, 64
LLAMAS = {  # of LlamaConfig; TinyLlama's 1.1 billion weights, and what a CPU does in a trial of the script
    "llama": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32},
    "tiny-llama": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
}
Told = dict[str, Any]
vision_model = cache(lambda folder, shape, patch: workloads.vision_model(folder, workloads.VISION[shape], 224, patch))


@dataclass(frozen=True)
class Run:
    """A contender: a script of `contenders/`. `decoder` is how it decodes images, an argument of `images_plain.py`.

    It should reach `share` of the smaller limit, and takes `start_seconds` before and after its stream.
    """

    label: str
    script: str
    arguments: tuple[str, ...] = ()
    share: float = 0.7
    start_seconds: float = 65.0
    decoder: str | None = None


@dataclass(frozen=True)
class Subject:
    """A model with its data.

    `make(folder, rows, options)` writes the model and the data, and returns what the contenders read in settings.json.
    `alone(told, device, dtype)` loads the model, and returns a function that computes a number of rows on the device,
    with the input on the device and the output on the host. `runs` begins with the two most important contenders.
    """

    job: str
    make: Callable[[Path, int, argparse.Namespace], Told]
    alone: Callable[[Told, str, str], Callable[[int], Any]]
    batches: tuple[int, ...]
    runs: tuple[Run, ...]


def photos(shape: str, patch: int, folder: Path, rows: int, options: argparse.Namespace) -> Told:
    images = linked_photos(folder.parents[1], rows, options.photos)
    return {"images": str(images), "size": 224, **vision_model(folder.with_name("model"), shape, patch)}


@cache
def linked_photos(folder: Path, rows: int, given: Path | None) -> Path:
    """Return a folder of this number of photos, which all models and contenders share."""
    places = (given, workloads.SHARED / "photos", Path("shared/data/photos"))
    place = next((place for place in places if place and place.is_dir()), None)
    files = sorted(place.glob("*.jp*g")) if place else made_photos(folder / "made")
    workloads.link(files, folder / f"images-{rows}", rows)
    return folder / f"images-{rows}"


@cache
def made_photos(folder: Path) -> list[Path]:
    """Write 60 JPEG files of 500 x 375 with structure at every scale, in the place of real photos."""
    from PIL import Image

    folder.mkdir()
    random, files = np.random.default_rng(0), []
    for number in range(60):
        pixels = np.zeros((375, 500, 3))
        for scale in (4, 16, 64, 250):
            noise = random.integers(0, 255, (scale, scale * 4 // 3, 3), dtype=np.uint8)
            pixels += np.asarray(Image.fromarray(noise).resize((500, 375), Image.Resampling.BICUBIC), float) / 4
        files.append(folder / f"made-{number:02d}.jpg")
        Image.fromarray(pixels.astype(np.uint8)).save(files[-1], quality=90)
    return files


def vision_alone(told: Told, device: str, dtype: str) -> Callable[[int], Any]:
    """Embed random uint8 images, which the device normalises."""
    import torch
    from transformers import CLIPVisionModelWithProjection

    number = getattr(torch, dtype)
    model = CLIPVisionModelWithProjection.from_pretrained(told["model"], dtype=number).eval().to(device)

    def call(rows: int) -> Any:
        images = torch.randint(0, 256, (rows, 3, 224, 224), dtype=torch.uint8, device=device)
        return model(pixel_values=images.to(number).sub_(116).div_(68)).image_embeds.float().cpu()

    return call


def texts(folder: Path, rows: int, options: argparse.Namespace) -> Told:
    return workloads.texts(workloads.WORKLOADS["texts"], folder, rows)


def texts_alone(told: Told, device: str, dtype: str) -> Callable[[int], Any]:
    """Embed the first texts in the order of their lengths. Their tokens are made within the time."""
    import pyarrow.parquet as pq
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(told["model"])
    model = AutoModel.from_pretrained(told["model"], dtype=getattr(torch, dtype)).eval().to(device)
    first = pq.read_table(told["texts"])["text"].slice(0, 2048).to_pylist()
    first.sort(key=len)
    place = 0

    def call(rows: int) -> Any:
        nonlocal place
        some = [first[(place + row) % len(first)] for row in range(rows)]
        place = (place + rows) % len(first)
        encoded = tokenizer(some, padding=True, truncation=True, max_length=told["max_length"], return_tensors="pt")
        tokens = encoded.to(device)
        hidden, mask = model(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(-1)
        return ((hidden * mask).sum(1) / mask.sum(1)).float().cpu()

    return call


def speech(folder: Path, rows: int, options: argparse.Namespace) -> Told:
    return workloads.speech(workloads.WORKLOADS["speech"], folder, rows)


def speech_alone(told: Told, device: str, dtype: str) -> Callable[[int], Any]:
    """Transcribe 30 s of silence: each shorter sound becomes as many features."""
    import torch
    from transformers import AutoModelForSpeechSeq2Seq

    number = getattr(torch, dtype)
    model = AutoModelForSpeechSeq2Seq.from_pretrained(told["model"], dtype=number).eval().to(device)

    def call(rows: int) -> Any:
        features = torch.zeros((rows, model.config.num_mel_bins, 3000), dtype=number, device=device)
        return model.generate(features, language="en", max_new_tokens=16, return_timestamps=False).cpu()

    return call


def prompts(name: str, folder: Path, rows: int, options: argparse.Namespace) -> Told:
    """Write prompts of 64 words, one token per word, and a Llama that never ends a text by itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    made = [" ".join(f"w{word}" for word in draw.integers(2, WORDS, PROMPT_TOKENS)) for _ in range(rows)]
    (folder / "texts").mkdir()
    table = pa.table({"id": range(rows), "text": made})
    pq.write_table(table, folder / "texts/texts.parquet", row_group_size=max(rows // 20, 1))
    model = llama(name, folder.with_name("model"))
    return {"texts": str(folder / "texts"), "model": str(model), "new_tokens": NEW_TOKENS}


@cache
def llama(name: str, folder: Path) -> Path:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "num_key_value_heads": 4, "max_position_embeddings": 2048}
    config = LlamaConfig(**LLAMAS[name], **sizes, bos_token_id=None, eos_token_id=1, pad_token_id=1)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(eos_token_id=1, pad_token_id=1, min_new_tokens=NEW_TOKENS)
    model.save_pretrained(folder)
    words = {"[UNK]": 0, "[END]": 1, **{f"w{number}": number for number in range(2, WORDS)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = {"eos_token": "[END]", "pad_token": "[END]", "unk_token": "[UNK]"}
    saved = PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **ends)
    saved.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"  # for vLLM's chat
    saved.save_pretrained(folder)
    return folder


def llama_alone(told: Told, device: str, dtype: str) -> Callable[[int], Any]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(told["model"], dtype=getattr(torch, dtype)).eval().to(device)

    def call(rows: int) -> Any:
        tokens = torch.randint(2, WORDS, (rows, PROMPT_TOKENS), device=device)
        mask = torch.ones_like(tokens)
        return model.generate(tokens, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False).cpu()

    return call


def _images(shape: str, patch: int) -> Subject:
    return Subject(
        "benchmark-images",
        partial(photos, shape, patch),
        vision_alone,
        (64, 256),
        (
            Run("Overnight, decode: fast", "images_overnight", ("fast",), decoder="fast"),
            Run("Ray's tutorial as published", "images_ray_tutorial", (), 0.2, 45, "exact"),
            Run("Daft, native", "images_daft", (), 0.3, 35, "others"),
            Run("Overnight, exact decoding", "images_overnight", decoder="exact"),
        ),
    )


def _generation(name: str) -> Subject:
    return Subject(
        "benchmark-generation",
        partial(prompts, name),
        llama_alone,
        (32, 128),
        (
            Run("Overnight, transformers", "generation_overnight", ("text_generation",)),
            Run("transformers in a loop", "generation_plain", (), 0.5, 35),
            Run("Daft, native", "generation_daft", (), 0.5, 45),
            Run("Overnight, vLLM", "generation_overnight", ("vllm",), 1.0, 150),
        ),
    )


SUBJECTS = {
    "vit-b-16": _images("real", 16),
    "clip-b-32": _images("real", 32),
    "tiny": _images("tiny", 32),
    "minilm": Subject(
        "benchmark-texts",
        texts,
        texts_alone,
        (128, 512),
        (
            Run("Overnight", "texts_overnight"),
            Run("Daft, native", "texts_daft", (), 0.5, 35),
            Run("sentence-transformers encode", "texts_sentence_transformers", (), 0.5, 35),
        ),
    ),
    "whisper-tiny": Subject(
        "benchmark-speech",
        speech,
        speech_alone,
        (16, 64),
        (
            Run("Overnight", "speech_overnight"),
            Run("Daft, native", "speech_daft", (), 0.5, 35),
            Run("PyAV and transformers in a loop", "speech_plain", (), 0.5, 35),
        ),
    ),
    "llama": _generation("llama"),
    "tiny-llama": _generation("tiny-llama"),
}


def make(subject: Subject, folder: Path, rows: int, cpus: int, options: argparse.Namespace) -> Told:
    """Fill `folder` with the model and data of a subject, and return what settings.json has."""
    folder.mkdir(parents=True)
    gpus = 0 if options.device == "cpu" else 1
    told = {"rows": rows, "cpus": cpus, "device": options.device, "gpus": gpus}
    told |= subject.make(folder, rows, options)
    told["overnight_model"] = {"num_gpus": gpus, "dtype": options.dtype}
    (folder / "settings.json").write_text(json.dumps(told))
    return told
