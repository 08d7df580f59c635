"""Make small documents, recordings and videos for the pages in docs/how-to/, each kind with one unusable file.

documents/<module>.pdf     the docstrings of 23 modules of Python's standard library, two pages of each at most
documents/scan.pdf         two pages that are pictures of text, without readable text
recordings/<number>.wav    23 melodies of 3 to 69 seconds, 8 kHz, one channel, without speech
recordings/broken-off.wav  the first half of such a file
videos/<number>.mp4        23 films of 1 to 5 seconds, ten frames a second: a shape that crosses the picture
videos/broken-off.mp4      the first half of such a file
"""

import ast
import sysconfig
import textwrap
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

MODULES = (
    *("argparse", "calendar", "codecs", "configparser", "contextlib", "copy", "dataclasses", "difflib", "fractions"),
    *("functools", "heapq", "imaplib", "inspect", "locale", "mailbox", "optparse", "pickle", "random", "shutil"),
    *("smtplib", "statistics", "subprocess", "textwrap"),
)
LINES_A_PAGE, PAGES = 30, 2
FILES = 23  # and a broken one: less than the 5 % that the jobs allow
SOUND_RATE, FRAME_RATE = 8_000, 10


def documents(folder: Path) -> None:
    library = Path(sysconfig.get_path("stdlib"))
    for module in MODULES:
        lines = [line for text in _docstrings(library / f"{module}.py") for line in [*textwrap.wrap(text, 90), ""]]
        pages = [lines[first : first + LINES_A_PAGE] for first in range(0, len(lines), LINES_A_PAGE)]
        _write_pdf(folder / f"{module}.pdf", pages[:PAGES])
    scans = [Image.new("L", (612, 792), 255) for _ in range(2)]
    for number, scan in enumerate(scans, 1):
        ImageDraw.Draw(scan).text((60, 60), f"Page {number}, on paper", 0)
    scans[0].save(folder / "scan.pdf", save_all=True, append_images=scans[1:])


def recordings(folder: Path) -> None:
    draw = np.random.default_rng(4)
    for number in range(FILES):
        hertz = np.repeat(draw.uniform(80, 400, 3 * (number + 1)), SOUND_RATE)
        loudness = np.tile(np.hanning(SOUND_RATE), 3 * (number + 1))
        samples = loudness * np.sin(2 * np.pi * np.cumsum(hertz) / SOUND_RATE)
        with wave.open(str(folder / f"{number:02}.wav"), "wb") as file:
            file.setparams((1, 2, SOUND_RATE, 0, "NONE", "not compressed"))
            file.writeframes((samples * 16_000).astype("<i2").tobytes())
    _break_off(folder / "07.wav", folder / "broken-off.wav")


def videos(folder: Path) -> None:
    import av

    draw = np.random.default_rng(5)
    for number in range(FILES):
        ground, colour = draw.integers(160, 256, 3).tolist(), draw.integers(0, 120, 3).tolist()
        with av.open(str(folder / f"{number:02}.mp4"), "w") as file:
            stream = file.add_stream("mpeg4", rate=FRAME_RATE)
            stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
            count = FRAME_RATE * (1 + number % 5)
            for place in range(count):
                image = Image.new("RGB", (160, 120), tuple(ground))
                left, top = 120 * place // count, 10 + 3 * number
                ImageDraw.Draw(image).ellipse((left, top, left + 40, top + 30), tuple(colour))
                file.mux(stream.encode(av.VideoFrame.from_image(image)))
            file.mux(stream.encode(None))
    _break_off(folder / "04.mp4", folder / "broken-off.mp4")


def _break_off(whole: Path, broken: Path) -> None:
    content = whole.read_bytes()
    broken.write_bytes(content[: len(content) // 2])


def _docstrings(file: Path) -> Iterator[str]:
    """Yield the docstrings of a module and its members, each after the name of its object."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield f"{getattr(node, 'name', file.stem)}: {' '.join(text.split())}"


def _write_pdf(file: Path, pages: list[list[str]]) -> None:
    """Write lines of text in Helvetica as PDF 1.4: numbered objects, then a table of their places in the file."""
    numbers = [4 + 2 * page for page in range(len(pages))]  # each page, followed by its content
    kids = " ".join(f"{number} 0 R" for number in numbers)
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, lines in zip(numbers, pages, strict=True):
        drawn = "\n".join(f"({_escaped(line)}) '" for line in lines)
        stream = f"BT /F 10 Tf 14 TL 60 740 Td\n{drawn}\nET"
        uses = f"/Resources << /Font << /F 3 0 R >> >> /Contents {number + 1} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {uses} >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    written, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    file.write_bytes(f"{written}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}".encode("latin-1"))


def _escaped(line: str) -> str:
    for character in "\\()":
        line = line.replace(character, f"\\{character}")
    return line.encode("latin-1", "replace").decode("latin-1")
