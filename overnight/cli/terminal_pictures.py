"""Pictures in terminals that draw them, by the protocols of kitty and of iTerm2.

https://sw.kovidgoyal.net/kitty/graphics-protocol/ (also Ghostty) and https://iterm2.com/documentation-images.html (also
WezTerm and mintty). tmux and screen do not pass on these protocols, so no picture is drawn in them.
"""

import os
from collections.abc import Mapping
from typing import Literal

Protocol = Literal["kitty", "iterm2"]
PIECE = 4096  # the largest piece of Base64 that kitty takes


def protocol_of(environment: Mapping[str, str] = os.environ) -> Protocol | None:
    """Return the protocol of the terminal that started this process; None if it is not known to draw pictures."""
    program, kind = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    if "TMUX" in environment or kind.startswith(("screen", "tmux")):
        return None
    if "KITTY_WINDOW_ID" in environment or kind in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    known = program in ("iTerm.app", "WezTerm", "mintty") or environment.get("LC_TERMINAL") == "iTerm2"
    return "iterm2" if known else None


def drawn(png: str, lines: int, protocol: Protocol) -> str:
    """Return the escape sequence that draws a PNG at the cursor, and then moves to the line below it.

    `png` is the picture in Base64, and `lines` is its height in lines of text.
    """
    if protocol == "iterm2":
        return f"\x1b]1337;File=inline=1;height={lines};preserveAspectRatio=1:{png}\x07\n"
    pieces = [png[start : start + PIECE] for start in range(0, len(png), PIECE)]
    found = ""
    for number, piece in enumerate(pieces):
        first = f"a=T,f=100,r={lines},q=2," if number == 0 else ""  # q=2: the terminal sends no answer
        found += f"\x1b_G{first}m={int(number < len(pieces) - 1)};{piece}\x1b\\"
    return found + "\n"
