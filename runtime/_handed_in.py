"""Adapters that a host hands in: seen to be adapters before anything runs, and fenced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from lastword.actors.core.adapter import Adapter, AdapterKey, AnyAdapter, PaneAdapter, StructuredAdapter, is_spoken_to
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import UsageError
from lastword.actors.core.fence import fenced
from lastword.actors.core.service import ApiAdapter
from lastword.transports.providers import ADAPTERS


def with_ours(adapters: Sequence[AnyAdapter]) -> dict[AdapterKey, AnyAdapter]:
    """The built-in ones, and these. One that goes by the name of a built-in one over the same transport replaces it
    where its class is derived from that one's: that is how it is asked for.

    Raises:
        UsageError: ``usage``: it is a class or no adapter, has a transport that is none, or its name is taken.
    """
    known: dict[AdapterKey, AnyAdapter] = dict(ADAPTERS)
    given: set[AdapterKey] = set()
    for adapter in adapters:
        _check(adapter)
        key = (adapter.name, adapter.transport)
        if key in given:
            raise _wrong(adapter, f"two adapters are called {adapter.name!r} over {adapter.transport}", "Rename one")
        given.add(key)
        ours = ADAPTERS.get(key)
        if ours is adapter:
            continue
        if ours is not None and not isinstance(adapter, type(ours)):
            reason = f"{adapter.name!r} over {adapter.transport} is the name of a built-in adapter"
            raise _wrong(adapter, reason, f"Rename yours, or derive it from {type(ours).__name__} to replace that")
        known[key] = fenced(adapter)
    return known


def _check(adapter: object) -> None:
    if isinstance(adapter, type):
        raise _wrong(adapter, f"{adapter.__name__} is a class, an adapter is an object", f"{adapter.__name__}()")
    missing = _missing(adapter, _parts_of(Adapter) & _parts_of(ApiAdapter))
    if missing:
        raise _wrong(adapter, f"a {type(adapter).__name__} is no adapter: it has no {missing}", "")
    name, transport = getattr(adapter, "name", None), getattr(adapter, "transport", None)
    if not isinstance(name, str) or not name or not name.isprintable():
        raise _wrong(adapter, f"an adapter's name is a printable str, not {name!r}", "")
    if transport not in get_args(TransportName):
        names = ", ".join(get_args(TransportName))
        raise _wrong(adapter, f"the transport of {name!r} is {transport!r}, which is none", f"One of {names}")
    if transport == "api":
        wanted = _parts_of(ApiAdapter)
    elif is_spoken_to(adapter) or transport == "structured":
        wanted = _parts_of(StructuredAdapter)
    else:
        wanted = _parts_of(PaneAdapter)
    if missing := _missing(adapter, wanted):
        raise _wrong(adapter, f"the adapter {name!r} over {transport} has no {missing}", "docs/adding-a-provider.md")


def _parts_of(protocol: type) -> set[str]:
    """Names of all that is asked of such an adapter."""
    return {
        name
        for each in protocol.__mro__
        if getattr(each, "_is_protocol", False)
        for name in (*vars(each), *getattr(each, "__annotations__", ()))
        if not name.startswith("_")
    }


def _missing(adapter: object, wanted: set[str]) -> str:
    return ", ".join(sorted(name for name in wanted if not hasattr(type(adapter), name) and not hasattr(adapter, name)))


def _wrong(adapter: object, reason: str, remedy: str) -> UsageError:
    name = getattr(adapter, "name", "")
    return UsageError("usage", reason, remedy=remedy, provider=name if isinstance(name, str) else "")
