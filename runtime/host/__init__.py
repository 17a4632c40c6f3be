"""The host layer: what a host shows and how it sequences turns, made of events and completions alone (C33, C43).

It knows no provider, no transport, no pane and no transcript; a test of the whole folder says so.
"""

from lastword.runtime.host.schedule import Schedule, ScheduleResult, Step, StepResult
from lastword.runtime.host.view import Row, SessionView, ToolRow

__all__ = ["Row", "Schedule", "ScheduleResult", "SessionView", "Step", "StepResult", "ToolRow"]
