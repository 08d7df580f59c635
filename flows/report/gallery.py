"""Make cards of rows to look at: a small picture with its boxes, a sound to play, texts, labels and numbers.

A card keeps texts as they are; the page escapes and shortens them.
"""

import base64
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.flows import preview_cells
from overnight.flows.job.model import Job
from overnight.flows.ledger.chosen_rows import with_inputs
from overnight.flows.report.drawn_files import SECONDS, Drawing, draw
from overnight.flows.report.row_sample import Roles
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.location import Location

PICTURE_PIXELS, PICTURE_QUALITY = 208, 76
SOUND_BYTES = 200_000  # of the largest sound that the page holds
BUDGET_BYTES = 3_000_000  # of all pictures and sounds; Base64 makes a third more of them
LONG_TEXT = 40  # characters from which the texts of a column get a line of their own
SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "m4a": "audio/mp4"}
BOX_COLOUR = (255, 196, 0)
NO_BOXES = np.empty((0, 4))  # left, top, right and bottom of each
MOST_FILE_BYTES = 2**26  # of a document, or of the image of a failed row


@dataclass
class Card:
    """A row of the gallery. `picture` and `sound` are data URLs, or empty."""

    row_id: str
    picture: str = ""
    sound: str = ""
    labels: list[tuple[str, str]] = field(default_factory=list)  # name and value of short columns
    texts: list[tuple[str, str]] = field(default_factory=list)  # name and value of long texts

    differs: bool = False  # the prediction from the label

    @property
    def alternative(self) -> str:
        """Return what a screen reader reads in place of the picture."""
        values = ", ".join(f"{name} {value}" for name, value in self.labels[:3])
        return f"row {self.row_id}: {values}" if values else f"row {self.row_id}"


@dataclass
class Group:
    """Cards with a title. `is_plain` if no card has a picture, a sound or a long text, so that a table shows them."""

    title: str
    cards: list[Card]

    @property
    def is_plain(self) -> bool:
        return not any(card.picture or card.sound or card.texts for card in self.cards)

    @property
    def is_wide(self) -> bool:
        """Return True if the cards have long texts, or no pictures, and need room."""
        return any(card.texts for card in self.cards) or not any(card.picture for card in self.cards)

    @property
    def names(self) -> list[str]:
        """Return the names of the columns, for a table."""
        names: dict[str, str] = {}
        for card in self.cards:
            names.update(card.labels)
        return list(names)


@dataclass
class Gallery:
    """The cards of a job's rows. Without room for it in `left_bytes`, a picture or a sound is left out."""

    job: Job
    roles: Roles = field(default_factory=Roles)
    left_bytes: int = BUDGET_BYTES
    left_seconds: float = SECONDS  # to read files, and to draw their pages and frames
    texts: set[str] = field(default_factory=set)  # columns with a long text, which look the same on all cards

    def group(self, title: str, rows: pa.Table) -> Group:
        """Return a group of drawn rows. Columns with a role come first on each card."""
        rows = self._with_drawings(with_inputs(rows, self.job))
        values = {name: preview_cells.values(rows[name]) for name in rows.column_names}
        group = Group(title, [])
        self.texts |= {name for name, column in values.items() if any(map(_is_long, column))}
        for number in range(len(rows)):
            row = {name: column[number] for name, column in values.items()}
            group.cards.append(self._card(row, number))
        return group

    def failed_row(self, row: Mapping[str, Any]) -> Card:
        """Return the card of a row of a quarantine, with its picture or sound if its file can be read."""
        card = Card(str(row["row_id"]), sound=self._sound(row.get("uri")))
        if self.job.source.holds_images:
            image = preview_cells.pixels(_content(row.get("uri")))
            if image is not None:
                card.picture = self.picture(image)
        return card

    def picture(self, image: np.ndarray, boxes: np.ndarray = NO_BOXES) -> str:
        """Return an image, uint8 H x W x 3, as the data URL of a small JPEG, or an empty text without room for it."""
        from PIL import Image, ImageDraw

        picture = Image.fromarray(image)
        picture.thumbnail((PICTURE_PIXELS, PICTURE_PIXELS))
        scale = picture.width / image.shape[1]
        for box in boxes:
            left, top, right, bottom = box * scale
            if right > left and bottom > top:
                ImageDraw.Draw(picture).rectangle((left, top, right, bottom), outline=BOX_COLOUR, width=2)
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=PICTURE_QUALITY, optimize=True)
        return self._data_url("image/jpeg", buffer.getvalue())

    def _with_drawings(self, rows: pa.Table) -> pa.Table:
        """Return rows of documents and videos with a column `image` added: the page or frame that a row was made of."""
        kind, step = self.job.source.kind, None
        origin = {"pdf": "page", "video": "frame"}.get(kind, "")
        if not {"uri", origin} <= {*rows.column_names} or "image" in rows.column_names:
            return rows
        if kind == "video":
            step = next((step for step in self.job.steps if step.kind == "sample_frames"), None)
        end, files = time.monotonic() + self.left_seconds, dict[str, bytes]()
        for uri in rows["uri"].unique().to_pylist():
            if time.monotonic() < end:
                files[uri] = _content(uri)
        places = zip(rows["uri"].to_pylist(), rows[origin].to_pylist(), strict=True)
        drawings = [Drawing(files.get(uri, b""), number, step) for uri, number in places]
        pictures = draw(drawings, max(end - time.monotonic(), 0.0))
        self.left_seconds = max(end - time.monotonic(), 0.0)
        return rows.append_column("image", pa.array(pictures, pa.large_binary()))

    def _card(self, row: dict[str, Any], number: int) -> Card:
        card = Card(str(row.get("row_id", number)), sound=self._sound(row.get("uri")))
        boxes = _boxes(row, self.job)
        labels, scores = row.get("labels"), row.get("scores")
        if len(boxes) and isinstance(labels, list) and isinstance(scores, list):
            objects = [f"{label} {preview_cells.text_of(score)}" for label, score in zip(labels, scores, strict=False)]
            row = {name: value for name, value in row.items() if name not in ("boxes", "labels", "scores")}
            row["objects"] = ", ".join(objects)
        roles = self.roles
        if roles.truth:
            card.differs = str(row.get(roles.truth)) != str(row.get(roles.prediction))
        names = [name for name in (roles.truth, roles.prediction, roles.score) if name in row]
        names += [name for name in row if name not in (*names, "row_id", "uri")]
        for name in names:
            value = row[name]
            image = preview_cells.pixels(value)
            if image is not None:
                card.picture = card.picture or self.picture(image, boxes)
            elif isinstance(value, str) and name in self.texts:
                card.texts.append((name, value))
            elif not isinstance(value, bytes):
                card.labels.append((name, preview_cells.text_of(value)))
        return card

    def _sound(self, uri: str | None) -> str:
        kind = SOUNDS.get(str(uri).rpartition(".")[2].lower())
        if self.job.source.kind != "audio" or not kind:
            return ""
        content = _content(uri, SOUND_BYTES + 1)
        return self._data_url(kind, content) if 0 < len(content) <= SOUND_BYTES else ""

    def _data_url(self, kind: str, content: bytes) -> str:
        if len(content) > self.left_bytes:
            return ""
        self.left_bytes -= len(content)
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > LONG_TEXT


def _boxes(row: Mapping[str, Any], job: Job) -> np.ndarray:
    """Return the boxes of a row in pixels of its file, if no step but `resize_image` changed the image."""
    try:
        boxes = np.array(row.get("boxes") or NO_BOXES, float)
    except (TypeError, ValueError):  # another column of this name
        return NO_BOXES
    steps = [step for step in job.steps if step.kind not in ("decode_image", "sample_frames")]
    is_other = boxes.ndim != 2 or boxes.shape[1] != 4
    if is_other or "image" not in row or any(step.kind != "resize_image" for step in steps):
        return NO_BOXES
    if not steps:
        return boxes
    image = preview_cells.pixels(row["image"])
    size = getattr(steps[-1], "size", None)
    if image is None or size is None or len(steps) > 1:
        return NO_BOXES
    height, width = np.broadcast_to(size, 2)
    # resize_image scales the image to cover the size, and crops its centre.
    scale = max(height / image.shape[0], width / image.shape[1])
    offset = np.array([image.shape[1] * scale - width, image.shape[0] * scale - height] * 2) / 2
    return (boxes + offset) / scale


def _content(uri: str | None, most: int = MOST_FILE_BYTES) -> bytes:
    """Return at most this number of bytes of a file, or none if it cannot be read: the page only shows it."""
    if not uri:
        return b""
    try:
        with Location(uri).open() as file:
            return file.read(most)
    except (OSError, OvernightError, ValueError):  # ValueError: a name that no file has
        return b""
