"""A planner whose exceptions are logged. `decision.planners.foreign` decides what follows from them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final

from pydantic import JsonValue

from contextos.contracts.ports.planning import Planner, PlanRequest
from contextos.errors import Unavailable
from contextos.telemetry.logs import error_fields

_LOG: Final = logging.getLogger("contextos.planner")


class LoggedPlanner:
    """Asks `planner`, and logs the class and the frames of what it raises. `Unavailable` is an answer: no log."""

    def __init__(self, planner: Planner) -> None:
        self._planner, self.name = planner, planner.name

    async def propose(self, request: PlanRequest) -> Mapping[str, JsonValue]:
        with _LogErrors(request.run_id):
            return await self._planner.propose(request)


class _LogErrors:
    """Logs what is raised inside, and lets it pass."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Checks `kind` and not the object: a foreign object can claim another class.
        if kind is None or error is None or not issubclass(kind, Exception) or issubclass(kind, Unavailable):
            return
        # A handler or filter of the embedding application is foreign code too: it must not change the outcome.
        with suppress(Exception):
            _LOG.error("foreign code raised", extra={"run": self._run_id} | error_fields(error))
