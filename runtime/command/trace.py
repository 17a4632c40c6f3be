"""``lastword trace``: record who told whom what when, convert it for a viewer, show what a turn waited for.

A trace holds type names, ids and times, and no text of a message (C62): it can be pasted into a bug report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from lastword.actors.core.errors import UsageError
from lastword.actors.system.tracing import BEGINNING
from lastword.runtime import _trace_path as path
from lastword.runtime._trace import Step, Trace, read_trace, role
from lastword.runtime.command._show import as_json, note, one_line, out, table

DEFAULT_FILE = "lastword-trace.jsonl"
PIECE_STEPS = 1000
"""Written at once; some 350 kB."""


@click.group("trace")
def command() -> None:
    """Who told whom what when, with every wait."""


@command.command("record", context_settings={"ignore_unknown_options": True})
@click.option(
    "-o",
    "--out",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    help="The trace file; one that is there is added to.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def record(ctx: click.Context, file: Path, words: tuple[str, ...]) -> None:
    """Run a lastword command with tracing on: lastword trace record -- run "Fix the test".

    Exit code and output are those of the command.
    """
    rest = list(words[1:] if words[:1] == ("lastword",) else words)
    options = rest[: rest.index("--")] if "--" in rest else rest
    if any(word.split("=")[0] == "--trace" for word in options):
        raise UsageError("usage", "`trace record` names the trace file itself", remedy="Name another one with --out")
    if rest[:1] != ["run"]:
        raise UsageError("usage", "only a run can be recorded", remedy='lastword trace record -- run "TEXT"')
    from lastword.runtime.command.run import command as run  # noqa: PLC0415 - late: the whole actor system

    code = run.main(args=["--trace", str(file), *rest[1:]], prog_name="lastword run", standalone_mode=False)
    if _begun(file):
        note(one_line(f"lastword: traced to {file}; `lastword trace show {file}` prints what it waited for."))
    ctx.exit(code or 0)


def _begun(file: Path) -> bool:
    """Whether anything of a trace is in it."""
    try:
        with file.open("rb") as written:
            return written.read(len(BEGINNING)) == BEGINNING
    except OSError:
        return False


@command.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("turn", required=False)
@click.option("--json", "json_form", is_flag=True, help="One JSON object.")
def show(file: Path, turn: str | None, json_form: bool) -> None:
    """Print the critical path of TURN: every hop with its wait and handling, and their sum beside the latency measured.

    Without TURN: the only one in FILE, or a list of all.
    """
    trace = read_trace(file)
    turns = trace.turns()
    if turn is None and len(turns) != 1:
        out(
            as_json({"turns": [_summary(trace, each) for each in turns], "lost": trace.lost, "older": trace.older})
            if json_form
            else _list(trace)
        )
        return
    found = _path(trace, turn or turns[0])
    out(as_json(_fields(found, trace)) if json_form else _text(found, trace))


@command.command("convert")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    type=click.Choice(["perfetto", "svg", "jsonl"]),
    default="perfetto",
    show_default=True,
    help="The form.",
)
@click.option("--turn", help="Only what belongs to this turn, or caused it; for svg the turn to draw.")
@click.option("-o", "--out", "target", type=click.Path(path_type=Path), help="The file to write (default: stdout).")
def convert(file: Path, form: str, turn: str | None, target: Path | None) -> None:
    """Convert FILE for a viewer.

    perfetto: JSON for ui.perfetto.dev and chrome://tracing. svg: what one turn waited for, as a picture. jsonl: an
    object for each hop, commit and delivery, with its cause and its turn.
    """
    trace = read_trace(file)
    pieces = _converted(trace, form, turn)
    for line in _losses(trace):
        note(f"lastword: {line}.")
    if target is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        out("")
        return
    if target.exists() and target.samefile(file):
        raise UsageError("usage", f"{target} is the trace itself", remedy="Give --out another name")
    try:
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as written:  # noqa: PTH123
            written.writelines(pieces)
    except OSError as error:
        raise UsageError("usage", f"{target} cannot be written: {error.strerror}") from error


def _converted(trace: Trace, form: str, turn: str | None) -> Iterable[bytes]:
    """In pieces. What can be wrong is told before the first."""
    if form == "svg":
        from lastword.runtime._trace_svg import svg  # noqa: PLC0415 - only here

        turns = trace.turns()
        if turn is None and len(turns) != 1:
            raise UsageError(
                "usage", f"{len(turns)} turns are in the trace", remedy="Name the one to draw: --turn TURN"
            )
        return [svg(_path(trace, turn or turns[0]), trace).encode()]
    if turn is not None and not trace.of(turn):
        raise _unknown(turn)
    steps = path.story(trace, turn) if turn is not None else None
    if form == "jsonl":
        return _lines(iter(trace.steps.values() if steps is None else steps))
    from lastword.runtime._trace_perfetto import perfetto  # noqa: PLC0415 - only here

    return perfetto(trace, steps)


def _lines(steps: Iterator[Step]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    while some := list(islice(steps, PIECE_STEPS)):
        yield encoder.encode_lines(some)


def _unknown(turn: str) -> UsageError:
    return UsageError(
        "unknown_turn", f"no turn {turn!r} is in the trace", remedy="`lastword trace show FILE` lists them"
    )


def _path(trace: Trace, turn: str) -> path.CriticalPath:
    found = path.critical_path(trace, turn)
    if found is not None:
        return found
    if not trace.of(turn):
        raise _unknown(turn)
    remedy = "Convert it to see how far it came"
    raise UsageError("unknown_turn", f"the end of turn {turn} is not in the trace", remedy=remedy)


def _summary(trace: Trace, turn: str) -> dict[str, Any]:
    steps, found = trace.of(turn), path.critical_path(trace, turn)
    return {
        "turn_id": turn,
        "hops": len(steps),
        "total_ms": found.total_ns / 1e6 if found is not None else None,
        "outside_ms": found.sum_ns("outside") / 1e6 if found is not None else None,
    }


def _fields(found: path.CriticalPath, trace: Trace) -> dict[str, Any]:
    begin_ns = found.pieces[0].begin_ns
    return {
        "turn_id": found.turn,
        "whole": found.whole,
        "pieces": [
            {
                "at_ms": (piece.begin_ns - begin_ns) / 1e6,
                "ms": piece.ns / 1e6,
                "kind": piece.kind,
                "actor": piece.step.receiver if piece.step is not None else None,
                "message": piece.step.message if piece.step is not None else None,
                "what": piece.what or None,
            }
            for piece in found.pieces
        ],
        "wait_ms": found.sum_ns("wait") / 1e6,
        "handling_ms": found.sum_ns("handling") / 1e6,
        "outside_ms": found.sum_ns("outside") / 1e6,
        "total_ms": found.total_ns / 1e6,
        "since_woken_ms": found.since_woken_ns / 1e6,
        "since_seen_ms": found.since_seen_ns / 1e6 if found.since_seen_ns is not None else None,
        "measured_ms": found.measured_ms,
        "measured_since_seen_ms": found.measured_seen_ms,
        "lost": trace.lost,
        "older": trace.older,
    }


# --- text -----------------------------------------------------------------------------------------------------------


def _list(trace: Trace) -> str:
    rows = []
    for turn in trace.turns():
        told = _summary(trace, turn)
        total, outside = told["total_ms"], told["outside_ms"]
        rows.append((turn, str(told["hops"]), _ms(total), _ms(outside)))
    lines = [table(rows, ("TURN", "HOPS", "TOTAL MS", "OUTSIDE MS"))] if rows else ["no turn is in the trace"]
    return "\n".join([*lines, *_losses(trace)])


def _text(found: path.CriticalPath, trace: Trace) -> str:
    begin_ns, rows = found.pieces[0].begin_ns, []
    pieces = list(found.pieces)
    while pieces:
        piece = pieces.pop(0)
        at = _ms((piece.begin_ns - begin_ns) / 1e6)
        if piece.step is None:
            rows.append((at, "", "", _ms(piece.ns / 1e6), f"({piece.what or 'outside'})", "", ""))
            continue
        handling = pieces.pop(0) if pieces and pieces[0].step is piece.step else None
        step = piece.step
        rows.append(
            (
                at,
                _ms(piece.ns / 1e6),
                _ms(handling.ns / 1e6) if handling is not None else "",
                "",
                role(step.receiver),
                step.message,
                role(step.sender) or step.origin or "",
            )
        )
    heads = ("AT MS", "WAIT", "HANDLING", "OUTSIDE", "ACTOR", "MESSAGE", "FROM")
    sums = " + ".join(f"{kind} {_ms(found.sum_ns(kind) / 1e6)}" for kind in ("wait", "handling", "outside"))
    lines = [
        one_line(f"turn {found.turn}" + ("" if found.whole else ", as far as the trace tells")),
        table(rows, heads),
        f"{sums} = {_ms(found.total_ns / 1e6)} ms",
        _beside("accepted to told", found.total_ns if found.whole else None, found.measured_ms),
    ]
    if found.since_seen_ns is not None:
        lines.append(_beside("native record seen to told", found.since_seen_ns, found.measured_seen_ms))
    lines.append(f"woken to told: {_ms(found.since_woken_ns / 1e6)} ms by the hops")
    return "\n".join([*lines, *_losses(trace)])


def _beside(what: str, ns: int | None, measured_ms: float | None) -> str:
    hops = "not told by the hops" if ns is None else f"{_ms(ns / 1e6)} ms by the hops"
    return f"{what}: {hops}, " + (
        "not measured" if measured_ms is None else f"{_ms(measured_ms)} ms by the completion's own stamps"
    )


def _losses(trace: Trace) -> list[str]:
    lines = [f"{trace.lost} records were lost: more came than could be written"] if trace.lost else []
    lines += [f"{trace.older} older records are not looked at: the file is too large"] if trace.older else []
    return lines + ([f"{trace.unread} lines could not be read"] if trace.unread else [])


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
