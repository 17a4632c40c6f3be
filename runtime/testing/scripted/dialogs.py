"""Questions that take the keys until they are answered."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Dialog:
    """A question with options; the answer goes to ``done`` as an index, -1 for Escape.

    Without numbers (the real trust dialog) no digit chooses.
    """

    def __init__(
        self,
        title: list[str],
        options: list[str],
        done: Callable[[int], None],
        *,
        chosen: int = 0,
        numbered: bool = True,
    ) -> None:
        self.numbered = numbered
        self.title = title
        self.options = options
        self.done = done
        self.chosen = chosen
        self.paint_at = time.monotonic()

    def lines(self) -> list[str]:
        """How it looks."""
        rows = [f" {line}" for line in self.title]
        for number, option in enumerate(self.options):
            mark = "\u276f" if number == self.chosen else " "
            rows.append(f" {mark} {number + 1}. {option}" if self.numbered else f" {mark} {option}")
        last = " Esc to cancel \u00b7 Tab to amend" if self.numbered else " Enter to confirm \u00b7 Esc to cancel"
        return [*rows, "", last]


def startup_dialog(kind: str, cwd: str, answered: Callable[[bool], None]) -> Dialog:
    """The dialogs before the first prompt, as the real one lists them; the way in is never the default."""
    title, options, way_in = {
        "trust": (
            [
                "Accessing workspace:",
                "",
                cwd,
                "",
                "Quick safety check: Is this a project you created or one you trust?",
            ],
            ["No, exit", "Yes, I trust this folder"],
            1,
        ),
        "api_key": (
            ["Detected a custom API key in your environment", "", "Do you want to use this API key?"],
            ["Yes", "No (recommended)"],
            0,
        ),
    }.get(kind, (["A new version is available", "", "Update now?"], ["Not now", "Update and restart"], 0))
    return Dialog(
        title, options, lambda option: answered(option == way_in), chosen=1 - way_in, numbered=kind == "update"
    )
