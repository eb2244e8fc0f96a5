"""Why a run did what it did: the same reasons as `contextos why`."""

from __future__ import annotations

from typing import Annotated, Final, Self

from fastapi import APIRouter, Query

from contextos.contracts.entries.row import Topic
from contextos.contracts.model import Model
from contextos.server.access import RolesHere, RunName, readable_run
from contextos.server.callers import AppHere, CallerHere
from contextos.service.runs import Explanation, Run

reason_routes: Final = APIRouter(tags=["runs"])


class ReasonDocument(Model):
    """One sentence about a run, with text from outside escaped. `entry` and `kind` are of the journal entry behind it.

    `tool` is the tool that the sentence is about, or null if it is about the whole run.
    """

    topic: Topic
    tool: str | None
    text: str
    entry: int
    kind: str


class ReasonsDocument(Model):
    """The reasons of a run in the order in which they arose. `fault` says why the run does not verify, so that the
    reasons may be untrue; null if the whole run verifies.
    """

    run_id: str
    fault: str | None
    reasons: list[ReasonDocument]

    @classmethod
    def of_explanation(cls, run: Run, explanation: Explanation) -> Self:
        reasons = [ReasonDocument.model_validate(reason, from_attributes=True) for reason in explanation.reasons]
        return cls(run_id=run.run_id, fault=explanation.fault, reasons=reasons)


@reason_routes.get("/runs/{run}/why", response_model_exclude_unset=True)
async def get_reasons(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    name: RunName,
    tool: Annotated[
        str | None, Query(min_length=1, max_length=512, description="Only what is about this tool, or the whole run.")
    ] = None,
) -> ReasonsDocument:
    """Read why tools were shown or hidden, why people were asked, which facts decided, and who authorised."""
    run = await readable_run(app, caller, roles, name)
    return ReasonsDocument.of_explanation(run, await app.runs.why(run, tool=tool))
