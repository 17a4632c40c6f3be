"""A runtime in numbers: what :meth:`lastword.Runtime.metrics` gives, and the same as Prometheus text.

Every duration is in seconds, every stamp in Unix seconds. What counts up counts since the runtime was opened
(:attr:`Metrics.since`) and never goes down; states and depths are of this moment. No text of a message or an answer,
and no id of a session or a turn stands in here: the number of series is bounded by providers, statuses, states, kinds
of actors and reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from lastword.actors.core.outcome import Status
from lastword.actors.core.snapshot import SessionState

Boundary = Literal["commit", "delivery", "turn"]
"""Which wait of the completion trace a histogram is of. ``commit``: from the sight of the provider's terminal record to
the committed completion; ``delivery``: from there until the first subscriber, or the caller of ``run``, has it;
``turn``: from acceptance to the committed completion, of turns that a host sent.
"""

BOUNDS_S: Final[Mapping[Boundary, tuple[float, ...]]] = {
    "commit": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    "delivery": (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    "turn": (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
}
"""Upper bounds of the buckets, in seconds. 1 s is among those of ``commit``: it is the promise (C05)."""


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """How long one wait took.

    Attributes:
        counts: one for each bound of :data:`BOUNDS_S` (at most so long, and longer than the bound before), and one
            more for what took longer than the last bound.
        sum_s: all of them together, seconds.
    """

    boundary: Boundary
    provider: str
    counts: tuple[int, ...]
    sum_s: float

    @property
    def count(self) -> int:
        """How many were measured."""
        return sum(self.counts)


class Completions(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns of one provider ended with one status."""

    provider: str
    status: Status
    count: int


class Mailboxes(msgspec.Struct, frozen=True, kw_only=True):
    """All living actors of one kind (their class): how many, and how many messages wait for them now."""

    kind: str
    actors: int
    waiting: int
    deepest: int


class JournalNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The journal's writer.

    Attributes:
        commits: transactions; ``batches`` is what stood in them, the more together the slower the disk.
        largest_commit: most batches in one.
        retries, failed: tries after a passing failure; batches that were answered with an error.
        held_max: most batches that ever waited at once for a file that failed.
        behind: batches that are not durable now.
    """

    commits: int = 0
    batches: int = 0
    largest_commit: int = 0
    retries: int = 0
    failed: int = 0
    held_max: int = 0
    behind: int = 0


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """One runtime at one moment.

    Attributes:
        at, since: now, and when the runtime was opened.
        sessions: open ones by state, every state named; ``starting`` only until its CLI runs.
        open_turns: accepted or begun, and not settled.
        waiting_messages: accepted, and not seen in any turn yet.
        completions: by provider and status.
        latencies: see :data:`Boundary`.
        dead_letters: messages that no actor handled, and facts that came too late, by reason. The commonest reasons are
            named from the beginning, so that a rate has a zero to start from.
        late_terminals: further terminal records of settled turns, dropped (C06); also among ``dead_letters``.
        invariant_violations: what the reconciler had to repair (C40).
    """

    at: float
    since: float
    sessions: dict[SessionState, int]
    sessions_closed: int
    open_turns: int
    waiting_messages: int
    completions: tuple[Completions, ...]
    latencies: tuple[Histogram, ...]
    mailboxes: tuple[Mailboxes, ...]
    dead_letters: dict[str, int]
    late_terminals: int
    invariant_violations: int
    journal: JournalNumbers


# --- Prometheus -------------------------------------------------------------------------------------------------------

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What a host that serves the text says it is."""

_HISTOGRAMS: Final[Mapping[Boundary, tuple[str, str]]] = {
    "commit": (
        "lastword_completion_commit_seconds",
        "From the sight of the provider's terminal record to the committed completion.",
    ),
    "delivery": (
        "lastword_completion_delivery_seconds",
        "From the committed completion to the first subscriber or caller that has it.",
    ),
    "turn": ("lastword_turn_seconds", "From the acceptance of a host's message to its committed completion."),
}
_Labels = Mapping[str, str]
_Sample = tuple[str, _Labels, float]
"""What is put behind the family's name, the labels, the value."""


def prometheus(metrics: Metrics) -> str:
    """The same numbers in Prometheus' text format 0.0.4, to be served by the host as :data:`CONTENT_TYPE`."""
    lines: list[str] = []
    for name, kind, text, samples in _families(metrics):
        lines.append(f"# HELP {name} {_escaped(text, quotes=False)}")
        lines.append(f"# TYPE {name} {kind}")
        lines += [f"{name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(told: Metrics) -> Iterator[tuple[str, str, str, Iterable[_Sample]]]:
    def gauge(name: str, text: str, *samples: _Sample) -> tuple[str, str, str, Iterable[_Sample]]:
        return f"lastword_{name}", "gauge", text, samples

    def counter(name: str, text: str, *samples: _Sample) -> tuple[str, str, str, Iterable[_Sample]]:
        return f"lastword_{name}_total", "counter", text, samples

    boxes = told.mailboxes
    yield gauge("start_time_seconds", "When the runtime was opened, Unix seconds.", _one(told.since))
    yield gauge("sessions", "Open sessions by state.", *_by("state", told.sessions))
    yield counter("sessions_closed", "Sessions closed for good.", _one(told.sessions_closed))
    yield gauge("open_turns", "Turns that are not settled.", _one(told.open_turns))
    yield gauge("waiting_messages", "Accepted messages that no turn shows yet.", _one(told.waiting_messages))
    ended: list[_Sample] = [
        ("", {"provider": each.provider, "status": each.status}, each.count) for each in told.completions
    ]
    yield counter("completions", "Completions committed.", *ended)
    for boundary in get_args(Boundary):
        name, text = _HISTOGRAMS[boundary]
        of = [each for each in told.latencies if each.boundary == boundary]
        yield name, "histogram", text, [sample for each in of for sample in _buckets(each)]
    yield gauge("actors", "Living actors by kind.", *_by("kind", {box.kind: box.actors for box in boxes}))
    waiting = {box.kind: box.waiting for box in boxes}
    yield gauge("mailbox_messages", "Messages that wait in mailboxes, by kind of actor.", *_by("kind", waiting))
    deepest = {box.kind: box.deepest for box in boxes}
    yield gauge("mailbox_deepest_messages", "Messages in the fullest mailbox, by kind of actor.", *_by("kind", deepest))
    yield counter("dead_letters", "Messages and facts that nobody handled.", *_by("reason", told.dead_letters))
    yield counter("late_terminals", "Terminal records of settled turns, dropped.", _one(told.late_terminals))
    yield counter("invariant_violations", "States that the reconciler repaired.", _one(told.invariant_violations))
    journal = told.journal
    yield counter("journal_commits", "Transactions of the journal.", _one(journal.commits))
    yield counter("journal_batches", "Batches in them.", _one(journal.batches))
    yield counter("journal_retries", "Further tries after a passing failure.", _one(journal.retries))
    yield counter("journal_failed_batches", "Batches answered with an error.", _one(journal.failed))
    yield gauge("journal_behind_batches", "Batches that are not durable yet.", _one(journal.behind))
    yield gauge("journal_held_batches_max", "Most batches that waited at once for the file.", _one(journal.held_max))


def _one(value: float) -> _Sample:
    return "", {}, value


def _by(label: str, values: Mapping[Any, float]) -> list[_Sample]:
    return [("", {label: str(name)}, value) for name, value in values.items()]


def _buckets(of: Histogram) -> Iterator[_Sample]:
    provider = {"provider": of.provider}
    below = 0
    for bound, count in zip(BOUNDS_S[of.boundary], of.counts, strict=False):  # one count more than bounds
        below += count
        yield "_bucket", {**provider, "le": _number(bound)}, below
    yield "_bucket", {**provider, "le": "+Inf"}, of.count
    yield "_sum", provider, of.sum_s
    yield "_count", provider, of.count


def _labels(labels: _Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.encode(errors="replace").decode()  # half of a surrogate pair is no UTF-8
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


__all__ = [
    "BOUNDS_S",
    "CONTENT_TYPE",
    "Boundary",
    "Completions",
    "Histogram",
    "JournalNumbers",
    "Mailboxes",
    "Metrics",
    "prometheus",
]
