"""Settle an effect whose outcome nobody knows: what an operator signs, and the settlement."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter

from contextos.contracts.model import Model, Name, OpenObject, Seq
from contextos.contracts.refs import EvidenceRef
from contextos.deployment.operator import SettlementInput
from contextos.server.access import RolesHere, RunName, readable_run
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.shared.signing import to_sign
from contextos.service.operations.operation import ActToken
from contextos.service.views import RequestOutcome, StatedAct

settlement_routes: Final = APIRouter(tags=["runs"])


class SettlementDraft(Model):
    """Whether the effect happened, and the reference of the evidence for it, such as `artifact:ticket_4711#rev_1`.

    Of an effect that happened, `output` is what the call returned, and `mutations` names what it changed.
    """

    happened: bool
    evidence_ref: EvidenceRef
    output: OpenObject | None = None
    mutations: Seq[Name] = ()

    def by(self, operator: str) -> SettlementInput:
        """Return the statement of an operator."""
        return SettlementInput(self.happened, operator, self.evidence_ref, self.output, tuple(self.mutations))


class SignedSettlement(SettlementDraft):
    """A settlement with the compact JWS of its statement by the operator's key."""

    token: ActToken


SettlementBody = Annotated[SettlementDraft, json_of(SettlementDraft)]
SignedSettlementBody = Annotated[SignedSettlement, json_of(SignedSettlement)]


@settlement_routes.post(
    "/runs/{run}/settlement/statement", response_model_exclude_unset=True, openapi_extra=body_of(SettlementDraft)
)
async def post_settlement_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, draft: SettlementBody
) -> StatedAct:
    """Return what the caller signs to settle the effect for which a run waits. Nothing is recorded."""
    run = await readable_run(app, caller, roles, name)
    said = await app.settlements.statement(run.tenant_id, run.run_id, draft.by(caller.subject))
    return await to_sign(app, caller, said)


@settlement_routes.post(
    "/runs/{run}/settlement",
    status_code=202,
    response_model_exclude_unset=True,
    openapi_extra=body_of(SignedSettlement),
)
async def post_settlement(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, signed: SignedSettlementBody
) -> RequestOutcome:
    """Record whether the effect happened. The run is due, and an engine drives it on."""
    run = await readable_run(app, caller, roles, name)
    await app.settlements.settle(run.tenant_id, run.run_id, signed.by(caller.subject), signed.token)
    app.engine.submit(run.tenant_id, run.run_id)
    return RequestOutcome.of_view(await app.deployment.view(run.tenant_id, run.run_id))
