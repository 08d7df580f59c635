"""Make the demo's two data sets without a download.

The files, below the given folder:

    digits/date=2026-11-17/<digit>/<number>.png    200 images per date (17, 18, 19); the folder's name is the true label
    digits/date=2026-11-19/                        two more, broken files: half of a PNG, and a text named .png
    training/<digit>/<number>.png                  the other 1,197 images: none of them is in a partition
    sentences/<number>.jsonl                       400 sentences, 100 per file; columns module and text

The images are scikit-learn's 1,797 scanned digits (8 x 8, 17 greys), enlarged to 64 x 64 grey PNG files. The number is
the image's place in that data set. The sentences are the first ones of docstrings in Python's standard library, because
every machine has this English text, and it is worth searching.
"""

import ast
import hashlib
import json
import re
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

PARTITIONS = ("2026-11-17", "2026-11-18", "2026-11-19")
IMAGES_A_PARTITION = 200
TRUNCATED, NOT_AN_IMAGE = "3/truncated.png", "7/not-an-image.png"
SENTENCES, FILES = 400, 4
WHOLE_SENTENCE = re.compile(r"[A-Z][A-Za-z0-9 ,;:'()/.-]{40,220}\.")


def make_digits(folder: Path) -> None:
    """Write digits/ and training/, unless they exist."""
    if (folder / "digits").exists():
        return
    from sklearn.datasets import load_digits

    digits = load_digits()
    unfinished = folder / "digits.unfinished"
    for leftover in (unfinished, folder / "training"):
        shutil.rmtree(leftover, ignore_errors=True)
    order = np.random.default_rng(0).permutation(len(digits.images))
    for place, number in enumerate(order.tolist()):
        day = place // IMAGES_A_PARTITION
        home = unfinished / f"date={PARTITIONS[day]}" if day < len(PARTITIONS) else folder / "training"
        file = home / str(digits.target[number]) / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        grey = Image.fromarray((digits.images[number] * 255 / 16).astype(np.uint8))
        grey.resize((64, 64), Image.Resampling.BICUBIC).save(file)
    newest = unfinished / f"date={PARTITIONS[-1]}"
    whole = min((newest / "3").iterdir()).read_bytes()
    (newest / TRUNCATED).write_bytes(whole[: len(whole) // 2])
    (newest / NOT_AN_IMAGE).write_text("This file is a text, but it has a .png name.\n")
    unfinished.rename(folder / "digits")


def make_sentences(folder: Path) -> None:
    """Write sentences/, unless it exists."""
    target = folder / "sentences"
    if target.exists():
        return
    found = {text: module for module, text in _first_sentences(Path(sysconfig.get_path("stdlib")))}
    chosen = sorted(found, key=lambda text: hashlib.sha256(text.encode()).digest())[:SENTENCES]
    unfinished = folder / "sentences.unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        lines = [json.dumps({"module": found[text], "text": text}) for text in chosen[number::FILES]]
        (unfinished / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    unfinished.rename(target)


def _first_sentences(library: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the first sentence of each documented class and function of the library's public modules."""
    for file in sorted(library.glob("[a-z]*.py")):
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            sentence = re.split(r"(?<=[a-z)]\.) ", paragraph)[0]
            if WHOLE_SENTENCE.fullmatch(sentence):
                yield file.stem, sentence


if __name__ == "__main__":
    make_digits(Path(sys.argv[1]))
    make_sentences(Path(sys.argv[1]))
