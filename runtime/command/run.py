"""``lastword run``: one message, its progress on stderr, its last word on stdout, its status as exit code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import RejectedError, UsageError
from lastword.actors.core.ids import TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.policy import answer_trust
from lastword.runtime.command._desk import (
    Desk,
    LocalDesk,
    RemoteDesk,
    cli_providers,
    host_lives,
    known_session,
    open_reader,
)
from lastword.runtime.command._progress import open_progress
from lastword.runtime.command._rehearse import RehearseOption, find_real_cli, rehearsed
from lastword.runtime.command._show import (
    EXIT_DIALOG,
    EXIT_OF_STATUS,
    SECONDS,
    as_json,
    default_state,
    note,
    one_line,
    out,
    read_stdin,
    safe,
    state_option,
)
from lastword.runtime.command._turn import DialogWaitsError, Following, ask_person, terminal_to_ask

if TYPE_CHECKING:
    from lastword.runtime._runtime import Runtime


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, checked."""

    text: str
    provider: str
    cwd: Path | None
    model: str
    permission_mode: str
    transport: TransportName | None
    """As it was given; the runtime refuses what it does not know."""
    deadline_s: float | None
    rehearse: bool
    json_form: bool
    allow_uncertified: bool
    trust: bool
    session_id: str | None
    trace: Path | None
    state: Path | None


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where it runs."""

    state: Path
    cwd: Path
    env: Mapping[str, str] | None
    executables: Mapping[str, str]


@click.command("run")
@click.option("--provider", help="Which CLI or API (default: the first that is built in).")
@click.option("--cwd", type=click.Path(path_type=Path), help="Working directory of the CLI (default: this one).")
@click.option("--model", default="", help="Passed to the CLI.")
@click.option("--permission-mode", default="", help="Passed to the CLI.")
@click.option("--transport", help="How the CLI is spoken to (default: in a pane); lastword doctor names what there is.")
@click.option("--deadline", type=SECONDS, help="Cancel the turn after so many seconds.")
@click.option("--json", "json_form", is_flag=True, help="Print the completion as JSON on stdout.")
@click.option(
    "--rehearse",
    is_flag=True,
    cls=RehearseOption,
    help="The real CLI (or API client), sealed off, on a scripted model: no key, no network.",
)
@click.option("--allow-uncertified", is_flag=True, help="Accept a CLI version that was never certified.")
@click.option("--trust", is_flag=True, help="Where the CLI asks whether it may trust the folder: yes. Nothing else.")
@click.option("--session", "session_id", help="Go on in this session.")
@click.option(
    "--trace", type=click.Path(path_type=Path, dir_okay=False), help="Write who told whom what when to this file."
)
@state_option
@click.argument("text")
@click.pass_context
def command(
    ctx: click.Context, /, text: str, json_form: bool, deadline: float | None, provider: str | None, **rest: Any
) -> None:
    """Send TEXT (``-``: from stdin) and print the answer.

    Exit code: 0 completed, 1 failed, 130 cancelled, 3 lost, 2 refused, 4 a dialog waits and nobody can be asked.
    """
    if text == "-":
        text = read_stdin()
    if not text.strip():
        raise RejectedError("empty_message", "the message is empty", remedy="Give it a text")
    options = _Options(
        text=text, json_form=json_form, deadline_s=deadline, provider=provider or cli_providers()[0], **rest
    )
    try:
        with _ending_by_signal() as quiet:
            completion = _run(options, quiet)
    except _DialogLeftError as left:
        _tell_dialog(left, json_form=json_form)
        ctx.exit(EXIT_DIALOG)
    ctx.exit(EXIT_OF_STATUS[completion.status])


def _run(options: _Options, quiet: _Quiet) -> Completion:
    if options.session_id is not None and not options.rehearse:
        state = options.state or default_state()
        if host_lives(state):
            if options.trust:
                remedy = f"Answer it yourself: lastword send {options.session_id} --answer DIALOG OPTION"
                raise UsageError(
                    "usage", "--trust is for the host of the session, and that is another one", remedy=remedy
                )
            if options.trace is not None:
                remedy = "Trace the host: lastword run --trace FILE, Runtime.open(trace=FILE)"
                reason = "--trace is for the host of the session, and that is another one"
                raise UsageError("usage", reason, remedy=remedy)
            return _in_live_host(options, state, options.session_id)
        _must_be_on_record(state, options.session_id)
    with ExitStack() as stack:
        place = _place(options, stack)
        return _here(options, place, quiet)


def _must_be_on_record(state: Path, session_id: str) -> None:
    """So that a mistyped folder is not made.

    Raises:
        UsageError: ``unknown_session``.
        JournalError: there is no journal, or it cannot be read.
    """
    journal = open_reader(state)
    try:
        known_session(journal, session_id)
    finally:
        journal.close()


def _place(options: _Options, stack: ExitStack) -> _Place:
    here = options.cwd or Path()
    if not options.rehearse:
        return _Place(state=options.state or default_state(), cwd=here, env=None, executables={})
    from lastword.runtime import _preflight as preflight  # noqa: PLC0415 - late: only a rehearsal needs these
    from lastword.runtime.testing import Rehearsal  # noqa: PLC0415
    from lastword.transports.providers import ADAPTERS  # noqa: PLC0415

    adapter = preflight.find_adapter(ADAPTERS, options.provider, options.transport)
    if adapter.name not in rehearsed():
        raise UsageError(
            "unsupported_capability",
            f"{adapter.name!r} cannot be rehearsed: it is not known how it is sealed off",
            remedy=f"Can be rehearsed: {', '.join(rehearsed())}",
            provider=adapter.name,
        )
    executables = {} if adapter.transport == "api" else {options.provider: str(find_real_cli(adapter))}
    sealed = stack.enter_context(Rehearsal(provider=options.provider))
    env, cwd = sealed.env, sealed.cwd
    if options.cwd is not None:
        cwd = Path(preflight.check_cwd(options.cwd))
        env = sealed.env_for(cwd)
    return _Place(
        state=options.state or sealed.root / "state",
        cwd=cwd,
        env=env,
        executables=executables,
    )


def _here(options: _Options, place: _Place, quiet: _Quiet) -> Completion:
    from lastword.runtime._runtime import Runtime  # noqa: PLC0415 - late: the whole actor system

    session_id = ""
    runtime = Runtime.open(
        place.state,
        env=place.env,
        executables=place.executables,
        allow_uncertified=options.allow_uncertified,
        serve_socket=True,
        dialog_policy=answer_trust if options.trust else None,
        trace=options.trace,
    )
    try:
        if options.session_id is not None:
            session = runtime.session(session_id=options.session_id)
        else:
            session = runtime.session(
                options.provider,
                cwd=place.cwd,
                model=options.model,
                permission_mode=options.permission_mode,
                transport=options.transport,
            )
        session_id = session.session_id
        return _follow(LocalDesk(session), options, after=0 if options.session_id is None else session.snapshot().seq)
    except DialogWaitsError as error:
        quiet()
        _close(runtime)
        raise _DialogLeftError(error, session_id, _settled(place.state, error.turn_id), alive=False) from error
    finally:
        quiet()
        _close(runtime)


def _close(runtime: Runtime) -> None:
    lost = runtime.close().trace_lost
    if lost:
        note(f"lastword: {lost} records of the trace were lost: its file did not take them.")


def _in_live_host(options: _Options, state: Path, session_id: str) -> Completion:
    journal = open_reader(state)
    try:
        known = known_session(journal, session_id)
        desk = RemoteDesk(state, journal, known)
        return _follow(desk, options, after=journal.last_seq(known))
    except DialogWaitsError as error:
        raise _DialogLeftError(error, session_id, None, alive=True) from error
    finally:
        journal.close()


def _follow(desk: Desk, options: _Options, after: int) -> Completion:
    progress = open_progress()
    try:
        with desk.follow(after) as stream:
            ack = desk.send(options.text, message_id=None, deadline_s=options.deadline_s)
            ask = ask_person if terminal_to_ask() else None
            policy = answer_trust if options.trust else None
            completion = Following(desk, stream, ack, progress, ask, policy).wait()
    finally:
        progress.close()
    _tell(completion, json_form=options.json_form)  # before the CLI is ended: nothing stands before the last word
    return completion


def _settled(state: Path, turn_id: TurnId | None) -> Completion | None:
    """How the turn ended that this process's end cancelled."""
    if turn_id is None:
        return None
    journal = open_reader(state)
    try:
        return journal.completion(turn_id)
    finally:
        journal.close()


# --- telling -------------------------------------------------------------------------------------------------------


class _DialogLeftError(Exception):
    """A dialog that nobody here could answer; ``alive``: it still waits in a live host."""

    def __init__(self, waits: DialogWaitsError, session_id: str, completion: Completion | None, *, alive: bool) -> None:
        super().__init__(str(waits))
        self.dialog = waits.dialog
        self.session_id = session_id
        self.completion = completion
        self.alive = alive


def _tell(completion: Completion, *, json_form: bool) -> None:
    if json_form:
        out(as_json(completion))
    elif completion.answer:
        out(safe(completion.answer))
    if completion.error is not None:
        note(f"lastword: {one_line(completion.error.message or completion.status)} ({completion.error.kind}).")
    elif completion.empty and not json_form:
        note("lastword: an empty answer was recorded.")


def _tell_dialog(left: _DialogLeftError, *, json_form: bool) -> None:
    dialog = left.dialog
    options = " | ".join(f"{number}. {option}" for number, option in enumerate(dialog.options, 1))
    if left.alive:
        remedy = f"Answer it: lastword send {left.session_id} --answer {dialog.dialog_id} OPTION."
    else:
        remedy = "Run it on a terminal, or choose a --permission-mode that does not ask."
        if dialog.kind == "trust":
            remedy = "Run it on a terminal, or give --trust."
    question = one_line(f"{dialog.question} {options}", 600)
    note(f"lastword: a {dialog.kind} dialog waits and there is no terminal to ask: {question} (dialog_open). {remedy}")
    if json_form and left.completion is not None:
        out(as_json(left.completion))


# --- signals --------------------------------------------------------------------------------------------------------


class _Quiet:
    """From here on signals wait: what is being ended is ended whole."""

    def __init__(self) -> None:
        self.before: dict[signal.Signals, Any] = {}

    def __call__(self) -> None:
        for name in self.before:
            signal.signal(name, signal.SIG_IGN)


@contextmanager
def _ending_by_signal() -> Iterator[_Quiet]:
    """SIGTERM and SIGHUP end the command as it would end by itself: panes and processes go."""
    quiet = _Quiet()
    if threading.current_thread() is not threading.main_thread():
        yield quiet
        return
    quiet.before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    for name in (signal.SIGTERM, signal.SIGHUP):
        quiet.before[name] = signal.signal(name, _leave)
    try:
        yield quiet
    finally:
        for name, handler in quiet.before.items():
            signal.signal(name, handler)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
