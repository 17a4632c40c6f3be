"""Whether a process is as small at the end of a long run as it was once warm: samples, a line through them, bounds."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise
from pathlib import Path

from stress_memory import descriptors

WARM_SHARE = 0.2
"""Of the run; the samples of it are left out."""
SAMPLES_LEAST = 5
"""Behind the warming up; fewer are no line."""
BOUNDS = {
    "RSS MiB": (3.0, 50 / 2**20),
    "blocks": (4_000.0, 0.2),
    "threads": (2.0, 0.0),
    "descriptors": (2.0, 0.0),
}
"""How much more is flat, from the line's first to its last point: so many, and so many more for each turn between."""
COLUMNS = ["what", "first", "last", "rise of the line", "bound", ""]

Sample = list[float]
"""When (seconds), how many turns by then, and the four of :data:`BOUNDS`."""


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))


def sample(at_s: float, turns: int) -> Sample:
    gc.collect()  # or what waits for the collector is counted as kept
    return [at_s, turns, _status("VmRSS:") / 1024, sys.getallocatedblocks(), _status("Threads:"), descriptors()]


def least_s(each_s: float) -> float:
    """The shortest run that has a line, where a sample is taken so often: one sample to spare."""
    return each_s * (SAMPLES_LEAST + 1) / (1 - WARM_SHARE)


def rise(points: list[tuple[float, float]]) -> float:
    """How much more the line through the points, by least squares, has at its end than at its beginning."""
    n = len(points)
    x_mean, y_mean = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread if spread else 0.0
    return slope * (points[-1][0] - points[0][0])


def verdict(samples: list[Sample], length_s: float) -> tuple[list[list[object]], bool]:
    """The table's rows, and whether all is flat.

    Raises:
        ValueError: too short a run to lay a line through.
    """
    steady = [each for each in samples if length_s * WARM_SHARE <= each[0] <= length_s]
    if len(steady) < SAMPLES_LEAST:
        raise ValueError("too short to lay a line through")
    assert all(one[0] < two[0] for one, two in pairwise(steady))
    rows: list[list[object]] = []
    flat = True
    for place, (what, (allowed, a_turn)) in enumerate(BOUNDS.items(), start=2):
        points = [(each[0], each[place]) for each in steady]
        more, bound = rise(points), allowed + a_turn * (steady[-1][1] - steady[0][1])
        flat = flat and more <= bound
        rows.append([what, points[0][1], points[-1][1], more, bound, "flat" if more <= bound else "GROWS"])
    return rows, flat


def told(samples: list[Sample], length_s: float) -> tuple[list[list[object]], bool, str]:
    """:func:`verdict`, and why there is none: a run that is too short for one is not flat."""
    try:
        return *verdict(samples, length_s), ""
    except ValueError as error:
        return [], False, f" Flat or not: {error}."
