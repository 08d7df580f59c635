"""Small data and models for the pages in docs/how-to/, made on the spot: `python demo/workload.py photos clip ...`.

Everything comes to lie below .demo/ in the working directory; what is there stays. The models have the real
architectures and, but for chat, random weights: they load and run as their large relatives do, and what they say means
nothing.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import workload_data as data
import workload_language as language
import workload_media as media
import workload_models as models
from make_data import make_sentences

DEMO = Path(".demo")
PARTS: dict[str, Callable[[Path], None]] = {
    "photos": data.photos,
    "posts": data.posts,
    "orders": data.orders,
    "flowers": data.flowers,
    "documents": media.documents,
    "recordings": media.recordings,
    "videos": media.videos,
    "clip": models.clip,
    "resnet": models.resnet,
    "vit": models.vit,
    "sentiment": models.sentiment,
    "writer": models.writer,
    "whisper": models.whisper,
    "yolos": models.yolos,
    "tables": models.tables,
    "reviews": language.reviews,
    "articles": language.articles,
    "chat": language.chat,
    "llava": language.llava,
    "summarizer": language.summarizer,
}


def make(name: str) -> None:
    """Makes one part, unless it is there; whole or not at all."""
    if name == "sentences":
        make_sentences(DEMO)
        return
    target, unfinished = DEMO / name, DEMO / f"{name}.unfinished"
    if target.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    PARTS[name](unfinished)
    unfinished.rename(target)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or sys.exit(f"expected some of sentences, {', '.join(PARTS)}"):
        if wanted != "sentences" and wanted not in PARTS:
            sys.exit(f"{wanted}: expected some of sentences, {', '.join(PARTS)}")
        make(wanted)
        print(DEMO / wanted)
