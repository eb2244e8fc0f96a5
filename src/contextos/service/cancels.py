"""`app.cancels`: what a person signs to stop a run, and the request to stop it."""

from __future__ import annotations

from contextos.deployment.acts.act import stated_act
from contextos.deployment.deployment import Deployment
from contextos.deployment.operator import proposed_cancel, request_cancel
from contextos.deployment.queries.run_names import run_named
from contextos.deployment.queries.run_view import RunView
from contextos.service.acts import ActStatement, signed_elsewhere


class Cancels:
    """Stopping runs. The user of a run and the owner of its agent may stop it, and every operator."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    async def statement(self, tenant_id: str, name: str, actor_id: str, reason: str = "") -> ActStatement:
        """Return what `actor_id` signs to stop a run. It fits the run only until its journal grows.

        Raises:
            InvalidInput: the reason is too long or contains unsafe text.
            NotFound: there is no such run or request in this tenant.
        """
        store = self._deployment.ports.stores.tenant(tenant_id)
        run_id = await run_named(store, name)
        act = stated_act(tenant_id, proposed_cancel(run_id, reason, await store.read(run_id)), actor_id).to_json()
        return ActStatement.of_act(act)

    async def request(self, tenant_id: str, name: str, actor_id: str, token: str, reason: str = "") -> RunView:
        """Request that a run stops, proved by the compact JWS of `statement`. An effect that was sent goes on.

        Raises:
            ApprovalRefused: the run has ended (`not_waiting`), the person may not stop it, or the token is not their
                signature of the run as it is now (`assertion_invalid`): ask for the statement again.
            InvalidInput: the reason is too long or contains unsafe text.
            NotFound: there is no such run or request in this tenant.
        """
        run_id = await run_named(self._deployment.ports.stores.tenant(tenant_id), name)
        return await request_cancel(
            self._deployment, tenant_id, run_id, by=signed_elsewhere(self._deployment, actor_id, [token]), reason=reason
        )
