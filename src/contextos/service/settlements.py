"""`app.settlements`: what an operator signs to settle an effect whose outcome nobody knows, and the settlement."""

from __future__ import annotations

from contextos.contracts.statements.settlements import SETTLEMENT_TYP
from contextos.deployment.deployment import Deployment
from contextos.deployment.operator import SettlementInput, settle_effect
from contextos.deployment.queries.run_names import run_named
from contextos.service.acts import ActStatement, signed_with, statement_of


class Settlements:
    """Effects of unknown outcome, which an operator settles who is not behind the request."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    async def statement(self, tenant_id: str, name: str, settlement: SettlementInput) -> ActStatement:
        """Return what `settlement.by` signs to settle the effect for which a run waits. `name` is the id of the run or
        of its request.

        Raises as `settle_effect`, but for what is wrong with the person or their signature.
        """
        app = self._deployment
        run_id = await run_named(app.ports.stores.tenant(tenant_id), name)
        return await statement_of(
            lambda sign: settle_effect(app, tenant_id, run_id, settlement, vouch=sign), SETTLEMENT_TYP
        )

    async def settle(self, tenant_id: str, name: str, settlement: SettlementInput, token: str) -> None:
        """Record the settlement, proved by the compact JWS of `statement`. The run is due at once.

        Raises as `settle_effect`.
        """
        app = self._deployment
        run_id = await run_named(app.ports.stores.tenant(tenant_id), name)
        await settle_effect(app, tenant_id, run_id, settlement, vouch=signed_with(app, token))
