"""Which run the current task drives, so that the log can name its trace.

It is in a context variable, because the code that logs gets no trace: adapters, the circuit breaker, the engine.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(slots=True)
class LoggedRun:
    """The run that a task drives, or drove last (`is_driven` is false then), and the id of its trace."""

    run_id: str
    trace_id: str
    is_driven: bool = True


LOGGED_RUN: Final[ContextVar[LoggedRun | None]] = ContextVar("contextos_logged_run", default=None)
