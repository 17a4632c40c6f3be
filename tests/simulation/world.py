"""The edge of the simulation: files with hints that get lost, doubled and late, and CLIs that die at any point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from random import Random

from lastword.actors.core.errors import LastwordError, TransportError
from lastword.actors.core.world import Endpoint
from lastword.actors.system.simulation import Simulation
from lastword.transports.memory import MemoryWorld
from simulation.cli import SimCli
from simulation.truth import Truth
from simulation.weather import Weather

SWEEP_S = 2.0
"""As the slow poll of the real edge: what changed since it was last told is told again."""


class SimWorld(MemoryWorld):
    """One machine."""

    def __init__(self, simulation: Simulation, random: Random, weather: Weather) -> None:
        super().__init__(clock=simulation.wall)
        self.simulation, self.random, self.weather = simulation, random, weather
        self.truth = Truth()
        self.running: list[SimCli] = []
        self._pid = count(1000)
        self._told: dict[tuple[str, int], tuple[int, int]] = {}
        simulation.after(SWEEP_S, self._sweep)

    def wall(self) -> float:
        return self.simulation.wall()

    def lag(self) -> float:
        return self.random.uniform(0.0, 0.5) if self.random.random() < self.weather.hint_late else 0.0

    def contents_or_empty(self, path: str) -> bytes:
        file = self._files.get(path)
        return bytes(file.data) if file is not None else b""

    # --- hints ------------------------------------------------------------------------------------------------

    def _version(self, path: str) -> tuple[int, int]:
        file = self._files.get(path)
        return (file.inode, len(file.data)) if file is not None else (0, 0)

    def _wake(self, path: str) -> None:
        watched = self._watches.get(path)
        if not watched:
            return
        weather, random = self.weather, self.random
        for token, callback in list(watched.items()):
            if weather.hint_lost and random.random() < weather.hint_lost:
                continue
            for _ in range(2 if weather.hint_doubled and random.random() < weather.hint_doubled else 1):
                lag_s = self.lag()
                if lag_s:
                    self.simulation.after(lag_s, callback)
                else:
                    self._told[path, token] = self._version(path)
                    callback()

    def _sweep(self) -> None:
        for path, watched in list(self._watches.items()):
            version = self._version(path)
            for token, callback in list(watched.items()):
                if self._told.get((path, token)) != version:
                    self._told[path, token] = version
                    callback()
        self.simulation.after(SWEEP_S, self._sweep)

    def unwatch(self, token: object) -> None:
        super().unwatch(token)
        self._told.pop(token, None)  # type: ignore[call-overload]

    # --- CLIs -------------------------------------------------------------------------------------------------

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        width: int,
        height: int,
        on_opened: Callable[[Endpoint | LastwordError], None],
    ) -> None:
        def opened() -> None:
            if self.random.random() < self.weather.open_fails:
                on_opened(TransportError("transport_failed", "no pane to be had", endpoint=name))
                return
            cli = SimCli(self, argv[-1], next(self._pid), name)
            self.running = [*(each for each in self.running if each.alive), cli]
            cli.begin()
            on_opened(cli)

        self.simulation.after(self.random.uniform(0.0, 0.1), opened)

    def alive(self) -> list[SimCli]:  # type: ignore[override]
        return [cli for cli in self.running if cli.alive]

    def cli_of(self, session_id: str) -> SimCli | None:
        return next((cli for cli in reversed(self.running) if cli.alive and cli.session == session_id), None)

    def watch_exit(self, endpoint: Endpoint, on_exit: Callable[[int | None], None]) -> None:
        assert isinstance(endpoint, SimCli)
        endpoint.on_exit(on_exit)

    def host_died(self) -> None:
        self._watches.clear()
        self._told.clear()
        for cli in self.running:
            cli.host_died()

    def close(self, grace_s: float) -> None:
        for cli in self.alive():
            cli.exit(0)
