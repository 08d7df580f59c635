"""A terminal's console on which names, reasons and rows cannot act: control characters in them are shown."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from overnight.tasks.config.masking import printable


class VisibleConsole(Console):
    """Rich's console. What it is given to print holds no escape sequence; styles are Rich's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
