"""The model's part of a turn."""

from __future__ import annotations

import re

from .identity import new_uuid
from .steps import inline_steps, last_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from .app import App
    from .steps import Record, Wait
    from .turn import Turn

RETRY_WAIT_S = 0.6


class Player:
    """Plays the steps of a prompt: asks, streams, calls tools, ends, each as the faults will have it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.attempts: dict[tuple[str, int], int] = {}

    def _steps(self, turn: Turn) -> list[Record]:
        names = re.findall(r"\[\[script:([^\]]+)\]\]", turn.prompt)
        if not names:
            unwrapped = (
                re.sub(r'\s*</?pasted_content id="\w+">\n?', "", turn.prompt) if "<pasted" in turn.prompt else ""
            )
            return inline_steps(unwrapped or turn.prompt)
        missing: list[Record] = [{"blocks": [{"type": "text", "text": f"no script named {names[-1]}"}]}]
        return self.app.scripts.get(names[-1]) or missing

    def play(self, turn: Turn) -> Wait:
        """The model's part of a turn; ends when the turn has its terminal record."""
        steps = self._steps(turn)
        self.app.crash(turn, "before")
        if "auto_compact" in turn.faults:
            self.app.recorder.compacted("auto", turn.prompt_id)
        for number in range(int(turn.faults.number("unknown_records", 3))):
            self.app.recorder.meta("record-of-the-future", number=number, nested={"deep": [1, 2]})
        if "huge_line" in turn.faults:
            self.app.recorder.meta("huge-record", filler="x" * int(turn.faults.number("huge_line", 4_000_000)))
        index = 0
        vetoes = int(turn.faults.number("stop_hook_veto", 1))
        while True:
            step = steps[min(index, len(steps) - 1)]
            failed = yield from self._request(turn, step, index)
            if failed:
                return
            blocks = yield from self._stream(turn, step)
            reason = step.get("stop_reason") or (
                "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
            )
            index += 1
            if reason == "tool_use":
                uuids = self.app.recorder.message(turn, blocks, reason)
                turn.answered += 1
                yield from self.app.tools.run(turn, blocks, uuids)
            elif reason == "max_tokens" and index < len(steps) + 1:
                self.app.recorder.message(turn, blocks, reason)
                self.app.recorder.note(turn, "Output token limit hit. Resume directly.")
                steps = [
                    *steps[:index],
                    *(steps[index:] or [{"blocks": [{"type": "text", "text": " and the rest"}]}]),
                ]
            elif reason == "refusal":
                yield from self._refused(turn, blocks)
                return
            elif not blocks and reason == "end_turn":
                if turn.answered >= 0 and index == 1:
                    self.app.recorder.note(turn, "[Your previous response had no visible output. Please continue.]")
                    continue
                yield from self._finish(turn, [], reason)
                return
            elif vetoes > 0:
                vetoes -= 1
                self.app.screen.show(blocks)
                self.app.recorder.message(turn, blocks, reason)
                self.app.recorder.hook_veto(turn)
                steps = [
                    *steps[:index],
                    {
                        "delay_s": 0.2,
                        "blocks": [{"type": "text", "text": "after the veto: " + last_text(blocks)}],
                    },
                ]
            else:
                yield from self._finish(turn, blocks, reason)
                return

    def _request(self, turn: Turn, step: Record, index: int) -> Generator[float, None, bool]:
        """Ask the model; True when the turn failed there."""
        turn.phase, turn.shown = "before", []
        turn.message_id = "msg_" + new_uuid().replace("-", "")[:16]
        error = step.get("error")
        times = int((error or {}).get("times") or 0)
        for attempt in (1, 2):
            self.app.recorder.request()
            yield float(step.get("delay_s", 0)) + 0.01
            key = (turn.prompt_id, index)
            self.attempts[key] = self.attempts.get(key, 0) + 1
            if error is None or (times and self.attempts[key] > times):
                return False
            if attempt == 1 and error["status"] != 400:
                yield float(error.get("retry_after_s") or RETRY_WAIT_S)
            else:
                break
        assert error is not None
        status = int(error["status"])
        text = f"API Error: {status} {error.get('message', 'scripted failure')}"
        self.app.screen.history += [f"  \u23bf  {text}", ""]
        self.app.recorder.api_error(turn, status, text)
        return True

    def _stream(self, turn: Turn, step: Record) -> Generator[float, None, list[Record]]:
        """The answer comes in; returns its blocks, complete."""
        yield float(step.get("hang_s", 0))
        size, pause_s = int(step.get("chunk_chars", 200)), float(step.get("chunk_pause_s", 0))
        blocks: list[Record] = []
        for source in step.get("blocks", []):
            block = dict(source)
            yield float(block.pop("pause_s", 0) or 0)
            key = {"text": "text", "thinking": "thinking"}.get(block["type"], "")
            if not key:
                block.setdefault("id", "toolu_" + new_uuid().replace("-", "")[:16])
                block = {
                    "type": "tool_use",
                    "id": block["id"],
                    "name": block["name"],
                    "input": block.get("input", {}),
                }
                blocks.append(block)
                continue
            full = block[key]
            if key == "text" and "quote_ui" in turn.faults:
                full += "\n\u276f\u00a0quoted prompt\n  ? for shortcuts\n  esc to interrupt"
                full += "\n Do you want to proceed?\n \u276f 1. Yes"
                block[key] = full
            partial = {**block, key: ""}
            turn.shown.append(partial)
            for at in range(0, len(full), size):
                partial[key] = full[: at + size]
                turn.phase = "stream"
                if at + size < len(full):
                    yield pause_s
                self.app.crash(turn, "mid")
            blocks.append(block)
        yield float(step.get("stop_pause_s", 0))
        return blocks

    def _refused(self, turn: Turn, blocks: list[Record]) -> Wait:
        self.app.recorder.message(turn, blocks, "refusal")
        self.app.recorder.inform("safeguards stopped the response above \u00b7 continuing once with that noted")
        self.app.recorder.note(turn, "Your response above was stopped by a safety classifier.", refusalRetry=True)
        yield 0.05
        turn.message_id = "msg_" + new_uuid().replace("-", "")[:16]
        self.app.recorder.message(turn, blocks, "refusal")
        self.app.recorder.chain(
            {
                "type": "system",
                "subtype": "model_refusal_no_fallback",
                "requestId": f"req_{turn.message_id[4:12]}",
                "content": "",
                "level": "warning",
                "isMeta": False,
            }
        )
        self.app.recorder.api_error(turn, 0, "API Error: safeguards flagged this message.", reason="refusal")

    def _finish(self, turn: Turn, blocks: list[Record], reason: str) -> Wait:
        """The last message and the closing record, as the faults will have it."""
        faults, recorder = turn.faults, self.app.recorder
        if self.app.pending:
            self.app.dequeue()
        self.app.screen.show(blocks)
        self.app.crash(turn, "end")
        if "torn" in faults:
            parts, _, pause = faults.text("torn").partition(":")
            recorder.torn = (max(2, int(parts or 2)), float(pause or 200) / 1000)
        recorder.extra_s = faults.number("record_delay", 2)
        if recorder.extra_s:
            self.app.registry.put("idle")
        if "no_record" in faults:
            return
        recorder.message(turn, blocks, reason)
        recorder.extra_s += faults.number("end_delay", 1)
        if "no_turn_duration" not in faults:
            recorder.turn_end(turn)
        for _ in range(int(faults.number("dup_end", 1))):
            self._repeat_end(turn, blocks, reason)
        if "late_dup" in faults:
            end = getattr(recorder, "last_line", None)
            if end is not None:  # the same record again, to the letter: a new one would hang on the next turn's chain
                self.app.later(faults.number("late_dup", 1), lambda: recorder.raw(end))
            else:
                self.app.later(faults.number("late_dup", 1), lambda: self._repeat_end(turn, blocks, reason))
        recorder.torn, recorder.extra_s = None, 0.0
        yield 0.0
        self.app.crash(turn, "after")

    def _repeat_end(self, turn: Turn, blocks: list[Record], reason: str) -> None:
        if "no_turn_duration" in turn.faults:
            self.app.recorder.message(turn, blocks, reason)
        else:
            self.app.recorder.turn_end(turn)

    def play_notified(self, turn: Turn) -> Wait:
        """The same for a turn that a background task started."""
        step: Record = {"blocks": [{"type": "text", "text": "noted the background task"}]}
        yield from self._request(turn, step, 0)
        blocks = yield from self._stream(turn, step)
        yield from self._finish(turn, blocks, "end_turn")
