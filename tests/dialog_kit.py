"""Dialogs on the in-process transport: two of them, a policy that answers when it is let, and ways to look."""

from __future__ import annotations

import threading

from host_kit import WAIT_S, bodies, kinds
from kit_system import until
from lastword import events
from lastword.actors.core.adapter import DialogOpen
from lastword.runtime._edge import Edge

TRUST_OPTIONS = ("No, exit", "Yes, I trust this folder")
TRUST = DialogOpen(key="t", question="Accessing workspace: /w", options=TRUST_OPTIONS, kind="trust")
PERMISSION = DialogOpen(key="p1", question="Run rm -rf build?", options=("Yes", "No"), kind="permission")


class Thinking:
    """A policy that tells when it was asked and answers when it is let."""

    def __init__(self, option=1, hangs=lambda _: True):
        self.option = option
        self.hangs = hangs
        self.asked = []
        self.may = threading.Event()

    def __call__(self, session_id, dialog):
        self.asked.append((session_id, dialog))
        if self.hangs(dialog):
            assert self.may.wait(WAIT_S)
        return self.option


def opened(rig, dialog=PERMISSION):
    """A session whose CLI shows that dialog in the middle of a turn."""
    session = rig.session()
    session.send("go")
    cli = rig.running(session)
    cli.open_dialog(dialog)
    until(lambda: "dialog_opened" in kinds(rig, session))
    return session, cli


def closed_by(rig, session):
    until(lambda: bodies(rig, session, events.DialogClosed))
    return [event.body.by for event in bodies(rig, session, events.DialogClosed)]


def counted(rig, reason):
    return rig.dead_letters().counts().get(reason, 0)


def digits(cli):
    return [key for key in cli.keys if key.isdigit()]


def shown(dialog):
    return {"kind": dialog.kind, "question": dialog.question, "options": dialog.options}


def advanced(rig, clock, seconds):
    clock.advance(seconds)
    rig.settle()
    return True


def edge_of(world, **options):
    return Edge(transport=world, files=world, wakes=world, close=world.close, **options)
