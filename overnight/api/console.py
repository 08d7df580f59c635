"""A console that prints control characters of names, reasons and rows visibly, so that they cannot act."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from overnight.tasks.config.masking import printable


class VisibleConsole(Console):
    """Rich's console, but escape sequences in printed text become visible. Rich's own styles stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
