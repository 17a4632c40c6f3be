"""Where a host's dialog policy runs: a thread for each question, a bounded number of them, none of them waited for."""

from __future__ import annotations

import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable

from lastword.actors.core.errors import UsageError
from lastword.actors.core.ids import SessionId
from lastword.actors.core.policy import DialogPolicy
from lastword.actors.core.snapshot import Dialog
from lastword.actors.system.dispatcher import join_all

CALLS_MAX = 64
"""Questions under way in one runtime, those that hang included; the next dialog is left to a person."""
CALLS_PER_SESSION_MAX = 4
"""Of these for one session, so that one whose policy always hangs uses up nobody else's."""
STOP_S = 1.0
"""How long the end of a runtime waits for a policy that still runs; its thread is a daemon and is named as left."""


def check_policy(policy: object) -> None:
    """Refuse what cannot be a policy.

    Raises:
        UsageError: ``usage``.
    """
    if not callable(policy):
        raise UsageError("usage", f"a dialog_policy is a function, not {type(policy).__name__}")
    if inspect.iscoroutinefunction(policy) or inspect.iscoroutinefunction(type(policy).__call__):
        remedy = "Give a plain function: it runs on a thread of its own and may block there"
        raise UsageError("usage", "a dialog_policy is no coroutine function", remedy=remedy)


class PolicyDesk:
    """Asks one policy on behalf of all sessions. Safe from any thread; :meth:`ask` never blocks on the policy."""

    def __init__(self, policy: DialogPolicy) -> None:
        check_policy(policy)
        self._policy = policy
        self._lock = threading.Lock()
        self._calls: Counter[SessionId] = Counter()
        self._threads: set[threading.Thread] = set()
        self._made = 0
        self._closed = False

    def ask(self, session_id: SessionId, dialog: Dialog, told: Callable[[object, str], None]) -> str:
        """Have it asked; ``told`` gets what it gave, or why it gave nothing. Returns why it is not asked, or ""."""
        with self._lock:
            if self._closed:
                return "is not asked any more: the runtime ends"
            if len(self._threads) >= CALLS_MAX or self._calls[session_id] >= CALLS_PER_SESSION_MAX:
                return "is not asked: it has not answered the questions before"
            self._made += 1
            thread = threading.Thread(
                target=self._call, args=(session_id, dialog, told), name=f"lastword-policy-{self._made}", daemon=True
            )
            try:
                thread.start()  # it waits for the lock before it leaves, so it is in the set by then
            except RuntimeError:
                return "is not asked: no thread could be started"
            self._threads.add(thread)
            self._calls[session_id] += 1
        return ""

    def close(self) -> list[str]:
        """Ask no more; names of the threads that still run."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        return join_all(threads, time.monotonic() + STOP_S)

    def _call(self, session_id: SessionId, dialog: Dialog, told: Callable[[object, str], None]) -> None:
        option: object = None
        fault = ""
        try:
            option = self._policy(session_id, dialog)
        except BaseException as error:
            fault = f"raised {type(error).__name__}"
        if inspect.iscoroutine(option):
            option.close()
        with self._lock:
            self._threads.discard(threading.current_thread())
            self._calls[session_id] -= 1
            if not self._calls[session_id]:
                del self._calls[session_id]
        told(option, fault)


__all__ = ["CALLS_MAX", "CALLS_PER_SESSION_MAX", "PolicyDesk", "check_policy"]
