"""The edge of model APIs: requests on one event loop, the host's tools on threads of their own.

One thread runs the loop of a runtime; every request of every session is a task on it, so none waits for another and a
cancelled one hangs up at once. The vendor's SDK is an extra (``lastword[anthropic]``): it is looked for before a
session opens and loaded with the first request, off the loop. Keys come from the runtime's environment and are never
told.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from lastword.actors.core.conversation import Call
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError, ProviderError
from lastword.actors.core.ids import SessionId
from lastword.actors.core.service import Failed, Failure, Replied, Retrying, Service, Streamed, Word
from lastword.actors.core.tools import Tool, ToolCall, ToolResult, arguments_of, result_text
from lastword.transports._guard import guarded
from lastword.transports.api_hooks import RETRIES

REQUESTS_MAX: Final = 256
"""Requests of one runtime under way; the next waits for one, in order."""
CUTS_MAX: Final = 2
"""So often an answer that broke off is asked for again. Nothing of it was acted on."""
CUT_PAUSE_S: Final = 0.5
JOIN_S: Final = 2.0
ERROR_CHARS_MAX: Final = 2000
SHOWN_CHARS_MAX: Final = 200
"""Of arguments that are none, told to the model with the reason."""

_DRIVERS: Final[Mapping[str, str]] = {
    "anthropic": "lastword.transports.api_anthropic",
    "openai": "lastword.transports.api_openai",
    "openai_chat": "lastword.transports.api_openai_chat",
}
"""Driver -> its module, which makes a :class:`Driver`."""


class Driver(Protocol):
    """One service through its vendor's SDK; lives on the loop."""

    async def ask(self, body: Mapping[str, Any], streamed: Callable[[str, str], None]) -> bytes:
        """The whole answer as JSON; ``streamed`` gets its id and text piece by piece. Raises what the SDK raises."""
        ...

    def failure(self, error: Exception, at: float) -> Failure:
        """What that exception says."""
        ...

    async def close(self) -> None: ...


Told = Callable[[Word], None]


class Request:
    """A request under way; as :class:`~lastword.actors.core.service.Asking`."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._response = ""
        self._text: list[str] = []
        self._over = False
        self.hang_up: Callable[[], object] = lambda: None

    def take(self) -> tuple[str, str]:
        """The answer's id and the text that has come since the last time."""
        with self._lock:
            text, self._text = "".join(self._text), []
            return self._response, text

    def cancel(self) -> None:
        """Hang up; nothing more is said."""
        with self._lock:
            self._over = True
        self.hang_up()

    def streamed(self, response: str, text: str) -> None:
        """More text has come; told once until it is taken."""
        with self._lock:
            fresh = not self._text or response != self._response
            if response != self._response:
                self._response, self._text = response, []
            self._text.append(text)
        if fresh:
            self.say(Streamed())

    def say(self, word: Word) -> None:
        """Tell it, unless nobody listens any more."""
        with self._lock:
            if self._over:
                return
            self._over = isinstance(word, Replied | Failed)
        guarded(self._told, word)


class ToolRun:
    """A tool that runs; as :class:`~lastword.actors.core.service.Calling`."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._cancelled.set()


class Services:
    """The transport ``api``. Thread-safe; nothing blocks but :meth:`close`.

    Args:
        env: holds keys and base URLs.
        tools: of the host, by name.
        wrote: told which record has grown.
    """

    name: TransportName = "api"

    def __init__(self, env: Mapping[str, str], tools: Mapping[str, Tool], wrote: Callable[[str], None]) -> None:
        self._env = dict(env)
        self._tools = dict(tools)
        self._wrote = wrote
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._drivers: dict[str, asyncio.Task[Driver]] = {}
        self._slots = asyncio.Semaphore(REQUESTS_MAX)
        self._running: set[threading.Thread] = set()
        self._runs: set[ToolRun] = set()
        self._made = 0
        self._closed = False

    @property
    def tools(self) -> Sequence[Tool]:
        """What the model is offered."""
        return tuple(self._tools.values())

    def watch_exit(self, endpoint: Any, on_exit: Callable[[int | None], None]) -> None:
        """There is no process."""

    def wrote(self, path: str) -> None:
        """As :class:`~lastword.actors.core.service.ApiTransport`."""
        self._wrote(path)

    def unready(self, service: Service) -> LastwordError | None:
        """As :class:`~lastword.actors.core.service.ApiTransport`."""
        return unready(service, self._env)

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(self, service: Service, body: Mapping[str, Any], told: Told) -> Request:
        """As :class:`~lastword.actors.core.service.ApiTransport`."""
        request = Request(told)
        with self._lock:
            closed = self._closed
            if not closed:
                loop = self._started()
                future = asyncio.run_coroutine_threadsafe(self._ask(service, body, request), loop)
                request.hang_up = lambda: guarded(future.cancel)
        if closed:
            request.say(Failed(Failure(kind="other", message="the transport is closed", at=time.time())))
        return request

    async def _ask(self, service: Service, body: Mapping[str, Any], request: Request) -> None:
        try:
            async with self._slots:
                word = await self._answer(service, body, request)
        except Exception as error:  # nothing of ours ends a request without a word
            word = Failed(Failure(kind="other", message=f"{type(error).__name__}", at=time.time()))
        request.say(word)

    async def _answer(self, service: Service, body: Mapping[str, Any], request: Request) -> Word:
        driver = await self._driver(service)
        for cuts in range(CUTS_MAX + 1):
            begun = False

            def streamed(response: str, text: str) -> None:
                nonlocal begun
                begun = True
                if text:
                    request.streamed(response, text)

            marked = RETRIES.set(lambda message: request.say(Retrying(message)))
            try:
                return Replied(await driver.ask(body, streamed))
            except Exception as error:
                failure = driver.failure(error, time.time())
                if not begun or failure.kind != "connection" or cuts == CUTS_MAX:
                    return Failed(failure)
                request.say(Retrying(f"the answer broke off: {failure.message}"))
            finally:
                RETRIES.reset(marked)
            await asyncio.sleep(CUT_PAUSE_S * 2**cuts)
        raise AssertionError("not reached")

    async def _driver(self, service: Service) -> Driver:
        made = self._drivers.get(service.driver)
        if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
            made = self._drivers[service.driver] = asyncio.ensure_future(self._make_driver(service))
        return await asyncio.shield(made)

    async def _make_driver(self, service: Service) -> Driver:
        loop = asyncio.get_running_loop()
        loaded: asyncio.Future[Any] = loop.create_future()

        def load() -> None:
            try:
                module = importlib.import_module(_DRIVERS[service.driver])
            except BaseException as error:
                failed = error
                loop.call_soon_threadsafe(lambda: loaded.set_exception(RuntimeError(f"{type(failed).__name__}")))
            else:
                loop.call_soon_threadsafe(loaded.set_result, module)

        threading.Thread(target=load, name="lastword-api-load", daemon=True).start()  # it may take a second
        module = await loaded
        driver: Driver = module.make(self._env)
        return driver

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run_loop, name="lastword-api", daemon=True)
            self._thread.start()
        return self._loop

    def _run_loop(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    # --- tools ------------------------------------------------------------------------------------------------------

    def call(self, call: Call, session_id: SessionId, told: Callable[[ToolResult], None]) -> ToolRun:
        """As :class:`~lastword.actors.core.service.ApiTransport`."""
        run = ToolRun()

        def work() -> None:
            try:
                result = self._result(call, session_id, run)
            finally:
                with self._lock:
                    self._running.discard(threading.current_thread())
                    self._runs.discard(run)
            if not run.cancelled:
                guarded(told, result)

        with self._lock:
            self._made += 1
            thread = threading.Thread(target=work, name=f"lastword-tool-{self._made}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                told(ToolResult(status="error", text="no thread could be started for it"))
                return run
            self._running.add(thread)  # it waits for the lock before it leaves
            self._runs.add(run)
        return run

    def _result(self, call: Call, session_id: SessionId, run: ToolRun) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolResult(status="error", text=f"There is no tool called {call.name!r}.")
        arguments = arguments_of(call.arguments)
        if arguments is None:
            text = f"The arguments are no JSON object: {call.arguments[:SHOWN_CHARS_MAX]}"
            return ToolResult(status="error", text=text)
        given = ToolCall(
            name=call.name,
            arguments=arguments,
            call_id=call.key,
            session_id=session_id,
            cancelled=lambda: run.cancelled,
        )
        try:
            return ToolResult(status="ok", text=result_text(tool.call(given)))
        except BaseException as error:
            return ToolResult(status="error", text=f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX])

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> list[str]:
        """Hang up on everything; bounded. Names of the threads that are left: of tools that do not come back."""
        with self._lock:
            self._closed = True
            loop, thread, running = self._loop, self._thread, list(self._running)
            for run in self._runs:
                run.cancel()
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(loop), loop)
            thread.join(2 * JOIN_S)
            running.append(thread)
        until_s = time.monotonic() + JOIN_S
        for each in running:
            each.join(max(0.0, until_s - time.monotonic()))
        return [each.name for each in running if each.is_alive()]

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            mine = asyncio.current_task()
            tasks = [task for task in asyncio.all_tasks(loop) if task is not mine]
            for task in tasks:
                task.cancel()
            await asyncio.wait([asyncio.gather(*tasks, return_exceptions=True)], timeout=JOIN_S / 2)
            for made in self._drivers.values():
                if made.done() and not made.cancelled() and made.exception() is None:
                    async with asyncio.timeout(JOIN_S / 2):
                        await made.result().close()
        finally:
            loop.stop()


def unready(service: Service, env: Mapping[str, str]) -> LastwordError | None:
    """Why that service cannot be asked here, or None."""
    if importlib.util.find_spec(service.sdk) is None:
        return ProviderError(
            "provider_unavailable",
            f"the {service.sdk} SDK is not installed: it comes with the extra lastword[{service.sdk}]",
            remedy=f"pip install 'lastword[{service.sdk}]'",
            provider=service.sdk,
        )
    if not env.get(service.key):
        return ProviderError(
            "provider_unavailable",
            f"no key: {service.key} is not set in the runtime's environment",
            remedy=f"Set {service.key}, or give it with env=",
            provider=service.sdk,
        )
    return None


__all__ = ["Driver", "Request", "Services", "ToolRun", "unready"]
