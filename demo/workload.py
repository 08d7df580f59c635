"""Make small data and models for the pages in docs/how-to/: `python demo/workload.py photos clip ...`.

The files are below .demo/ in the working directory; existing ones stay. The models have the real architectures and,
except chat, random weights. They load and run as the large models do, and their answers have no meaning.
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
    "entities": models.entities,
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
    """Make one part, unless it exists. An interrupted part leaves no target folder."""
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
    for wanted in sys.argv[1:] or sys.exit(f"expected names of sentences, {', '.join(PARTS)}; found none"):
        if wanted != "sentences" and wanted not in PARTS:
            sys.exit(f"expected names of sentences, {', '.join(PARTS)}; found {wanted}")
        make(wanted)
        print(DEMO / wanted)
