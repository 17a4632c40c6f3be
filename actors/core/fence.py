"""A fence around an adapter that was handed in: what it raises, wherever it is called, is one typed error that names
the method; what it gives is passed on as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, cast

from lastword.actors.core.adapter import AnyAdapter
from lastword.actors.core.errors import ProviderError

MADE = ("oracle", "talk")
"""Methods whose result is a part of the adapter's too, and is fenced alike."""


def fenced(adapter: AnyAdapter) -> AnyAdapter:
    """That adapter, of which each call raises ``ProviderError`` ``adapter_failed`` where the adapter raises."""
    return cast("AnyAdapter", _Fenced(adapter, adapter.name, ""))


class _Fenced:
    """Has what the other has, read at each use; holds nothing of its own."""

    def __init__(self, inner: object, whose: str, path: str) -> None:
        self._inner = inner
        self._whose = whose
        self._path = path

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self._inner, name)
        except AttributeError:
            raise  # it has none
        except Exception as error:
            raise self._failed(name, error) from error
        return self._guarded(name, value) if inspect.isroutine(value) else value

    def _guarded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **named: Any) -> Any:
            try:
                made = call(*args, **named)
            except Exception as error:
                raise self._failed(name, error) from error
            if name not in MADE or self._path or made is None:
                return made
            kind = _FencedExpecting if hasattr(made, "expect") else _Fenced
            return kind(made, self._whose, f"{name}.")

        return guarded

    def _failed(self, name: str, error: Exception) -> ProviderError:
        reason = f"the adapter of {self._whose} raised {type(error).__name__} in {self._path}{name}"
        return ProviderError("adapter_failed", reason, remedy="Repair the adapter", provider=self._whose)


class _FencedExpecting(_Fenced):
    """An oracle that can be told which turns are open: whoever asks looks for the method on the class."""

    def expect(self, native_turns: Collection[str]) -> None:
        self.__getattr__("expect")(native_turns)
