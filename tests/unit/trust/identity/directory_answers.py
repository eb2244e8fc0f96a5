"""A request, and the directory's answer about its user and agent, for the identity tests."""

from typing import Any

from contextos.contracts.envelopes.identity import KnownAgent, KnownDelegation, KnownUser, Principals
from contextos.contracts.envelopes.run import InvokeRequest

URN = "agent:contextos/support-refund@1.2.0"


TENANT = "tenant_acme_prod"


KNOWN = Principals(
    user=KnownUser(user_id="usr_771", role="customer", scopes=("orders.read", "payments.refund"), delegation_live=True),
    agent=KnownAgent(
        agent_id="agt_support",
        agent_urn=URN,
        workload_identity="spiffe://contextos/agents/support",
        role="support_ops",
        owner="usr_owner",
        lifecycle="active",
        ceiling="destructive",
        scopes=("orders.read", "payments.refund", "mail.send"),
    ),
    delegation=KnownDelegation(
        subject="usr_771", agent_id="agt_support", scopes=("orders.read", "payments.refund"), expires_at=1
    ),
)


def request(user: dict[str, Any] | None = None, agent: dict[str, Any] | None = None, **rest: Any) -> InvokeRequest:
    return InvokeRequest.model_validate(
        {
            "request_id": "req_1",
            "session_id": "sess_42f1",
            "tenant_id": TENANT,
            "user": {"user_id": "usr_771", **(user or {})},
            "agent": {
                "agent_id": "agt_support",
                "workload_identity": "spiffe://contextos/agents/support",
                **(agent or {}),
            },
            "context_pack_refs": ["ctxpack.support@5.2.0"],
            "input": {"intent": "support.refund", "message": "refund"},
            "mode": "batch",
            "runtime": {},
            "trace": {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"},
            **rest,
        }
    )


def known(user: dict[str, Any] | None = None, agent: dict[str, Any] | None = None) -> Principals:
    changed = {"user": KNOWN.user.model_copy(update=user or {}), "agent": KNOWN.agent.model_copy(update=agent or {})}
    return KNOWN.model_copy(update=changed)


def delegated(*scopes: str, **changes: Any) -> dict[str, Any]:
    """The user of a request who delegates `scopes` with their token."""
    return {"delegation": {"auth_type": "oauth2", "scopes": list(scopes), "token_ref": "tok_771", **changes}}
