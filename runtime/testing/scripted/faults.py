"""Misbehaviour on request; the names and their arguments are told in ``../scripted_cli.py``."""

from __future__ import annotations

from .steps import DIRECTIVE


class Faults:
    """Named misbehaviours with their arguments."""

    def __init__(self, words: list[str]) -> None:
        self.table: dict[str, str] = {}
        for word in words:
            name, _, argument = word.partition("=")
            if name.strip():
                self.table[name.strip()] = argument

    def __contains__(self, name: str) -> bool:
        return name in self.table

    def text(self, name: str) -> str:
        """The argument as it stands."""
        return self.table.get(name, "")

    def number(self, name: str, default: float = 0.0) -> float:
        """The argument as a number; ``default`` where the fault is on without one, 0 where it is off."""
        if name not in self.table:
            return 0.0
        try:
            return float(self.table[name])
        except ValueError:
            return default

    def spend(self, name: str) -> bool:
        """True for the first N calls of a fault with the argument N."""
        left = int(self.number(name, 1))
        if left > 0:
            self.table[name] = str(left - 1)
        return left > 0

    def with_prompt(self, prompt: str) -> Faults:
        """These and the prompt's own."""
        merged = Faults([argument for word, argument in DIRECTIVE.findall(prompt) if word == "fault"])
        merged.table = {**self.table, **merged.table}
        return merged
