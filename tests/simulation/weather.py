"""What goes wrong in one run, and how often: drawn from its seed, so that each run is bad in ways of its own."""

from __future__ import annotations

from random import Random

import msgspec


class Weather(msgspec.Struct, kw_only=True):
    """Chances (0 to 1) per occasion, unless said otherwise."""

    # the edge
    hint_lost: float = 0.0
    hint_doubled: float = 0.0
    hint_late: float = 0.0
    slow_op: float = 0.0
    look_fails: float = 0.0
    key_unsure: float = 0.0
    """The keys went out and the edge answers with an error."""
    open_fails: float = 0.0
    held_up: float = 0.0
    """An actor that got mail is kept waiting."""
    # the CLI
    dies: float = 0.0
    """Per step of a turn."""
    dies_at_start: float = 0.0
    slow_start: float = 0.0
    swallows_enter: float = 0.0
    loses_paste: float = 0.0
    ignores_escape: float = 0.0
    silent_escape: float = 0.0
    record_lags: float = 0.0
    torn: float = 0.0
    no_end: float = 0.0
    """The answer is on record, the registry says idle, and no terminal record follows."""
    hangs: float = 0.0
    """Nothing comes any more, until it is interrupted."""
    end_doubled: float = 0.0
    end_repeated_later: float = 0.0
    fails: float = 0.0
    empty: float = 0.0
    absorbs: float = 0.0
    drops: float = 0.0
    merges: float = 0.0
    by_itself: float = 0.0
    dialog: float = 0.0
    dialog_at_start: float = 0.0
    # people
    host_answers: float = 0.5
    person_types: float = 0.0
    person_clears: float = 0.0
    # the host
    crashes: float = 0.0
    """Lives of the host that end without a goodbye, per message of the plan."""
    actor_fails: float = 0.0
    """Handlers that raise, per message of the plan."""
    disk_fails: float = 0.0
    """Spells of a failing disk, per message of the plan."""
    interrupts: float = 0.0
    abandons: float = 0.0
    deadlines: float = 0.0
    same_id: float = 0.0
    same_text: float = 0.0
    clears: float = 0.0
    replaces: float = 0.0
    """The record is replaced by a new file of the same content."""
    bursts: float = 0.3
    """The next message comes at once, whatever the CLI does."""


_WORST = Weather(
    hint_lost=0.3,
    hint_doubled=0.2,
    hint_late=0.3,
    slow_op=0.2,
    look_fails=0.05,
    key_unsure=0.03,
    open_fails=0.1,
    held_up=0.03,
    dies=0.03,
    dies_at_start=0.1,
    slow_start=0.5,
    swallows_enter=0.15,
    loses_paste=0.1,
    ignores_escape=0.3,
    silent_escape=0.3,
    record_lags=0.3,
    torn=0.2,
    no_end=0.05,
    hangs=0.03,
    end_doubled=0.1,
    end_repeated_later=0.1,
    fails=0.1,
    empty=0.05,
    absorbs=0.3,
    drops=0.1,
    merges=0.3,
    by_itself=0.1,
    dialog=0.05,
    dialog_at_start=0.2,
    person_types=0.1,
    person_clears=0.02,
    crashes=0.03,
    actor_fails=0.03,
    disk_fails=0.03,
    interrupts=0.15,
    abandons=0.05,
    deadlines=0.05,
    same_id=0.05,
    same_text=0.1,
    clears=0.03,
    replaces=0.03,
    bursts=0.8,
)


def drawn(random: Random) -> Weather:
    """Each fault is absent in two runs of three."""
    weather = Weather(host_answers=random.random())
    for name in Weather.__struct_fields__:
        if name != "host_answers" and random.random() < 0.34:
            setattr(weather, name, getattr(_WORST, name) * random.random())
    return weather


def calm() -> Weather:
    """Nothing goes wrong."""
    return Weather(bursts=0.0)
