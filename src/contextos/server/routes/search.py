"""The parameters by which a list of runs is searched."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query

from contextos.contracts.envelopes.verdicts import DecisionStatus
from contextos.contracts.model import MAX_COUNT
from contextos.service.run_search import RunSearch

_NAME_CHARS: Final = 512


async def searched(
    subject: Annotated[
        str | None,
        Query(
            min_length=1, max_length=_NAME_CHARS, description="An entity that the decision of an ended run is about."
        ),
    ] = None,
    decision: Annotated[
        str | None,
        Query(min_length=1, max_length=_NAME_CHARS, description="The name of the decision spec, or a record id."),
    ] = None,
    approver: Annotated[
        str | None, Query(min_length=1, max_length=_NAME_CHARS, description="Who answered a question of the run.")
    ] = None,
    rule: Annotated[
        str | None, Query(min_length=1, max_length=_NAME_CHARS, description="A rule of policy that matched.")
    ] = None,
    status: Annotated[DecisionStatus | None, Query(description="Where the decision is.")] = None,
    began_from: Annotated[
        int | None, Query(ge=0, le=MAX_COUNT, description="The run began then or later (Unix time in microseconds).")
    ] = None,
    began_before: Annotated[
        int | None, Query(ge=0, le=MAX_COUNT, description="The run began before (Unix time in microseconds).")
    ] = None,
) -> RunSearch:
    """Return the search that the query of a request states (dependency of routes)."""
    return RunSearch(
        subject=subject,
        decision=decision,
        approver=approver,
        rule=rule,
        status=status,
        began_from_us=began_from,
        began_before_us=began_before,
    )


SearchHere = Annotated[RunSearch, Depends(searched)]
