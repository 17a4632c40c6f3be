"""The account of one run: the journal's rows by plain SQL against the CLIs' own log. Knows nothing of the product."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from simulation.cli import BY_PERSON
from simulation.truth import Taken, Truth, Worked

SLACK_S = 0.001
LOOK_S = 3.0
"""What is on record for that long is read: the slow poll takes 2 s, and an actor may be kept waiting."""


class Account:
    """Faults of one journal, one sentence each, with the rule that is broken."""

    def __init__(
        self, journal: Path, truth: Truth, down: list[tuple[float, float]], disk: list[tuple[float, float]]
    ) -> None:
        self.truth, self.down, self.disk = truth, down, disk
        self.faults: list[str] = [f"C24: {fault}" for fault in truth.faults]
        db = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
        try:
            self.turns = {row[0]: json.loads(row[1]) for row in db.execute("SELECT turn_id, body FROM turn")}
            self.turn_states = dict(db.execute("SELECT turn_id, state FROM turn"))
            self.messages = [json.loads(row[0]) for row in db.execute("SELECT body FROM message ORDER BY ord")]
            self.completions = {
                row[0]: (row[1], row[2], row[3], json.loads(row[4]))
                for row in db.execute("SELECT turn_id, session_id, seq, committed_at, body FROM completion")
            }
            self.events = [
                (*row[:6], json.loads(row[6]))
                for row in db.execute(
                    "SELECT session_id, seq, at, type, turn_id, message_id, body FROM event ORDER BY session_id, seq"
                )
            ]
        finally:
            db.close()
        self.texts = {message["message_id"]: message for message in self.messages}

    def fault(self, rule: str, what: str) -> None:
        self.faults.append(f"{rule}: {what}")

    def taken_of(self, message: dict[str, Any]) -> list[Taken]:
        session, text = message["session_id"], message["text"]
        return [taken for taken in self.truth.taken if taken.session == session and taken.text == text]

    def check(self) -> list[str]:
        self._seqs()
        self._one_completion_each()
        self._ends_of_messages()
        self._answers()
        self._typed_once()
        self._every_native_turn()
        self._crossings()
        return self.faults

    # --- C30 ----------------------------------------------------------------------------------------------------

    def _seqs(self) -> None:
        last: dict[str, int] = defaultdict(int)
        for session, seq, *_ in self.events:
            if seq != last[session] + 1:
                self.fault("C30", f"{session}: {seq} comes after {last[session]}")
            last[session] = seq

    # --- C02 ----------------------------------------------------------------------------------------------------

    def _one_completion_each(self) -> None:
        told = Counter(event[4] for event in self.events if event[3] == "unified_completion")
        for turn_id in self.turns:
            if turn_id not in self.completions:
                self.fault("C02", f"{turn_id} has no completion")
            if self.turn_states[turn_id] != "settled":
                self.fault("C02", f"{turn_id} is {self.turn_states[turn_id]}")
        for turn_id in self.completions:
            if turn_id not in self.turns:
                self.fault("C01", f"a completion of {turn_id}, which has no row")
            if told[turn_id] != 1:
                self.fault("C02", f"{turn_id} has {told[turn_id]} events of completion")

    # --- C20 ----------------------------------------------------------------------------------------------------

    def _ends_of_messages(self) -> None:
        ends: Counter[str] = Counter()
        for _, _, _, body in self.completions.values():
            for message_id in {body.get("message_id"), *body.get("joined", ())} - {None}:
                ends[message_id] += 1
        for event in self.events:
            if event[3] == "message_undelivered":
                ends[event[5]] += 1
        accepted = Counter(event[5] for event in self.events if event[3] == "message_accepted")
        for message in self.messages:
            message_id = message["message_id"]
            if ends[message_id] != 1:
                self.fault("C20", f"{message_id} {message['text']!r} {message['state']} has {ends[message_id]} ends")
            if accepted[message_id] != 1:
                self.fault("C20", f"{message_id} was accepted {accepted[message_id]} times")

    # --- C03, C04, C05: what the completions say -----------------------------------------------------------------

    def _answers(self) -> None:
        for turn_id, (_, _, at, body) in self.completions.items():
            native = body.get("native_turn_id", "")
            if native:
                worked = self.truth.turns.get(native)
                if worked is None:
                    self.fault("C04", f"{turn_id} ended with {native}, which no CLI ran")
                else:
                    self._answer(turn_id, at, body, worked)
            elif body.get("message_id"):
                self._never_ran(turn_id, at, body)

    def _answer(self, turn_id: str, at: float, body: dict[str, Any], worked: Worked) -> None:
        status, source = body["status"], body["source"]
        where = f"{turn_id} ({worked.native}) {status} by {source}"
        if body["session_id"] != worked.session:
            self.fault("C30", f"{where}: of session {worked.session}")
        message_id = body.get("message_id")
        for each in filter(None, (message_id, *body.get("joined", ()))):
            if self.texts[each]["text"] not in worked.takes:
                self.fault("C19", f"{where}: {each} {self.texts[each]['text']!r} is not in it: {worked.takes}")
        ended = worked.end_at
        match source:
            case "transcript":
                if error_kind(body) == "superseded":
                    if ended is not None and ended < at - LOOK_S:
                        self.fault("C03", f"{where}: superseded, its end was on record at {ended}")
                elif ended is None or ended > at + SLACK_S:
                    self.fault("C04", f"{where}: before its terminal record")
                elif status != worked.status or (status == "completed" and body["answer"] != worked.answer):
                    self.fault("C03", f"{where}: {body.get('answer')!r}, but it was {worked.status} {worked.answer!r}")
                elif status == "failed" and error_kind(body) != worked.error:
                    self.fault("C03", f"{where}: {error_kind(body)}, but it was {worked.error}")
            case "reconciler":
                vanished = status == "lost" and error_kind(body) == "record_missing" and ended is None
                if vanished and worked.answer_at is None:
                    pass  # the CLI forgot it without a word, and has been idle ever since
                elif worked.answer_at is None or status != "completed" or body["answer"] != worked.answer:
                    self.fault("C40", f"{where}: {body.get('answer')!r}, but it was {worked.status} {worked.answer!r}")
                if ended is not None and ended < at - LOOK_S:
                    self.fault("C40", f"{where}: its end was on record at {ended}, settled at {at}")
            case "interrupt":
                if worked.interrupted_at is None:
                    self.fault("C07", f"{where}: nobody interrupted it")
                if ended is not None and ended < at - 1.0 and worked.status != "cancelled":
                    self.fault("C05", f"{where}: it {worked.status} on record at {ended}, settled at {at}")
            case "process_exit":
                if self.truth.died.get(worked.pid, at + 1.0) > at + SLACK_S:
                    self.fault("C03", f"{where}: its CLI lives")
                if ended is not None and ended <= at:
                    self.fault("C03", f"{where}: but it {worked.status} on record at {ended}")
            case _:
                self.fault("C03", f"{where}: it ran")
        if ended is not None and at - ended > self._bound_s(ended, at):
            self.fault("C05", f"{where}: {at - ended:.1f} s after its terminal record")

    def _bound_s(self, begin: float, end: float) -> float:
        """Slow poll, held up actors, pauses between tries, and the time that the host was away or the disk failed."""
        spells = (*self.down, *self.disk)
        away = sum(max(0.0, min(end, until) - max(begin, since)) for since, until in spells)
        return 20.0 + away

    def _never_ran(self, turn_id: str, at: float, body: dict[str, Any]) -> None:
        """A turn without a native one: no CLI may have it on record as run."""
        message = self.texts[body["message_id"]]
        same = [each for each in self.messages if each["text"] == message["text"]]
        if len(same) > 1:
            return  # which of them ran cannot be told by the text; the counts are checked elsewhere
        for taken in self.taken_of(message):
            worked = self.truth.turns.get(taken.native)
            if worked is not None and worked.prompt_at is not None and worked.prompt_at < at - SLACK_S:
                what = f"{turn_id} {body['status']} {error_kind(body)} by {body['source']}"
                self.fault(
                    "C20", f"{what}: but it ran as {worked.native}, on record at {worked.prompt_at}, settled {at}"
                )

    # --- C13, C24 -------------------------------------------------------------------------------------------------

    def _nobody_can_know(self, taken: Taken) -> bool:
        """The host died between its Enter and the commit that says so, and the CLI before its record showed the prompt:
        by all that is on record it was never entered, and so it is entered once more.
        """
        worked, died = self.truth.turns.get(taken.native), self.truth.died.get(taken.pid)
        if worked is None or worked.prompt_at is not None or died is None:
            return False
        return any(taken.at <= since <= min(died, taken.at + 1.0) for since, _ in self.down)

    def _typed_once(self) -> None:
        asked = Counter((message["session_id"], message["text"]) for message in self.messages)
        entered = [each for each in self.truth.taken if not each.text.startswith(BY_PERSON)]
        taken = Counter((each.session, each.text) for each in entered if not self._nobody_can_know(each))
        for key, times in taken.items():
            if times > asked[key]:
                self.fault("C24", f"{key} was entered {times} times and sent {asked[key]} times")
        order = {(each["session_id"], each["text"]): number for number, each in enumerate(self.messages)}
        last: dict[str, tuple[int, str]] = {}
        for each in self.truth.taken:
            key = (each.session, each.text)
            if asked[key] != 1:
                continue
            before = last.get(each.session, (-1, ""))
            if order[key] < before[0]:
                self.fault("C13", f"{each.session}: {each.text!r} was delivered after {before[1]!r}")
            last[each.session] = (order[key], each.text)

    # --- C19 ------------------------------------------------------------------------------------------------------

    def _every_native_turn(self) -> None:
        owners: dict[str, list[str]] = defaultdict(list)
        for turn_id, (_, _, _, body) in self.completions.items():
            if body.get("native_turn_id"):
                owners[body["native_turn_id"]].append(turn_id)
        moved = {event[4] for event in self.events if event[3] == "message_moved"}
        for native, worked in self.truth.turns.items():
            own = [turn_id for turn_id in owners[native] if turn_id not in moved]
            if len(own) > 1:
                self.fault("C19", f"{native} has the turns {own}")
            if not owners[native] and worked.prompt_at is not None and not self._history(worked):
                self.fault("C19", f"{native} {worked.text!r} of {worked.session} has no turn")
            sent = [text for text in worked.takes if not text.startswith(BY_PERSON)]
            origins = {self.completions[turn_id][3].get("origin", "host") for turn_id in own}
            if sent and worked.text == sent[0] and origins - {"host"}:
                self.fault("C19", f"{native} {worked.text!r} was sent, and is a turn of origin {origins}")

    def _history(self, worked: Worked) -> bool:
        """Of a conversation that the CLI was moved to while nobody looked."""
        return "+" in worked.conversation and any(since - 5.0 <= worked.started <= until for since, until in self.down)

    # --- C30 ------------------------------------------------------------------------------------------------------

    def _crossings(self) -> None:
        natives = {turn_id: body.get("native_turn_id", "") for turn_id, (_, _, _, body) in self.completions.items()}
        tools: Counter[tuple[str, str, str]] = Counter()
        settled: set[str] = set()
        for session, seq, _, kind, turn_id, _message_id, body in self.events:
            where = f"{session} {seq} {kind}"
            if turn_id in settled and kind not in ("dialog_closed", "dialog_opened", "stall_diagnosed"):
                self.fault("C06", f"{where}: after the completion of {turn_id}")
            match kind:
                case "assistant_message":
                    if body["text"].split(":")[1] != natives[turn_id]:
                        self.fault("C30", f"{where}: {body['text']!r} in {turn_id} ({natives[turn_id]})")
                case "tool_started" | "tool_finished":
                    if body["call_id"].split("/")[0] != natives[turn_id]:
                        self.fault("C30", f"{where}: {body['call_id']} in {turn_id} ({natives[turn_id]})")
                    tools[session, body["call_id"], kind] += 1
                case "unified_completion":
                    settled.add(turn_id)
                case _:
                    pass
            if turn_id in self.turns and self.turns[turn_id]["session_id"] != session:
                self.fault("C30", f"{where}: {turn_id} is of {self.turns[turn_id]['session_id']}")
        for (session, call, kind), times in tools.items():
            if times != 1 or tools[session, call, "tool_started"] != tools[session, call, "tool_finished"]:
                self.fault("C32", f"{session} {call}: {times} {kind}")


def error_kind(body: dict[str, Any]) -> str:
    error = body.get("error")
    return error["kind"] if error else ""
