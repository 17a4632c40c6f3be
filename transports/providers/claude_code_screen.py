"""Stub until the real one is merged."""

import json
from lastword.actors.core.adapter import DialogOpen, NotReady, Ready


def signals(view):
    st = None
    if view.status:
        try:
            st = json.loads(view.status)
        except ValueError:
            st = None
    lines = list(view.screen)
    text = "\n".join(lines)
    if st is None and ("trust" in text.lower() or "❯ 1." in text):
        return DialogOpen(key=text[-200:], question=text.strip()[:200], options=("1", "2"))
    if st and st.get("status") == "waiting":
        return DialogOpen(key=str(st.get("waitingFor")), question=str(st.get("waitingFor")), options=("Yes", "No"))
    rules = [i for i, l in enumerate(lines) if l.startswith("────")]
    if len(rules) < 2:
        return NotReady(reason="no box")
    box = lines[rules[-2] + 1 : rules[-1]]
    if not box or not box[0].startswith("❯"):
        return NotReady(reason="no prompt")
    d = "\n".join([box[0][1:].lstrip("\u00a0 ")] + [b[2:] for b in box[1:]]).strip()
    if d.startswith('Try "'):
        d = ""
    return Ready(draft=d, busy=bool(st and st.get("status") == "busy"))


def clear_draft_keys(draft):
    return ("C-u",) * (draft.count("\n") * 2 + 1)


def answer_keys(dialog, option):
    return (str(option),)
