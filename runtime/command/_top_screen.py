"""Frames as what a terminal is sent: only the lines that changed, each at its own place. Colours are rich's."""

from __future__ import annotations

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from lastword.runtime.command._top_lines import Line

_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}


class Painter:
    """Knows what stands on the screen of a terminal of that size. Not thread-safe."""

    def __init__(self, width: int, height: int) -> None:
        self.size = (width, height)
        console = Console(force_terminal=True)
        self._colors = _SYSTEMS.get(console.color_system or "")
        self._plain = console.no_color
        self._shown: list[Line | None] = [None] * height
        self._styles: dict[str, Style] = {}

    def forget(self) -> None:
        """Nobody knows what stands there: the next frame is painted whole."""
        self._shown = [None] * len(self._shown)

    def paint(self, frame: tuple[Line, ...]) -> str:
        """What makes the screen show the frame; "" where it does already."""
        sent: list[str] = []
        for number in range(len(self._shown)):
            line = frame[number] if number < len(frame) else ()
            if line != self._shown[number]:
                sent.append(f"\x1b[{number + 1};1H\x1b[2K{self._line(line)}")
                self._shown[number] = line
        return "".join(sent)

    def _line(self, line: Line) -> str:
        return "".join(
            self._style(style).render(text, color_system=self._colors) if style else text for text, style in line
        )

    def _style(self, words: str) -> Style:
        style = self._styles.get(words)
        if style is None:
            style = Style.parse(words)
            self._styles[words] = style = style.without_color if self._plain else style
        return style
