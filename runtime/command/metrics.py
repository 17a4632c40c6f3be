"""``lastword metrics``: the live host of a state folder in numbers, as Prometheus text. Asked through its socket."""

from __future__ import annotations

from pathlib import Path

import click

from lastword.runtime import _door as door
from lastword.runtime.command._desk import HOST_ANSWER_S
from lastword.runtime.command._show import as_json, default_state, out, safe, state_option
from lastword.runtime.metrics import prometheus


@click.command("metrics")
@click.option("--json", "json_form", is_flag=True, help="One JSON object.")
@state_option
def command(json_form: bool, state: Path | None) -> None:
    """Print the numbers of the running host, in Prometheus' text format 0.0.4."""
    metrics = door.ask(state or default_state(), door.GetMetrics(), wait_s=HOST_ANSWER_S).metrics
    assert metrics is not None
    out(as_json(metrics) if json_form else safe(prometheus(metrics)).rstrip("\n"))
