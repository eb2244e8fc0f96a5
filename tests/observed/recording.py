"""Deployments of the shop in memory: with a pack that observes, or with another one, and the 500 calls in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from contextos import pack
from contextos.contracts.ports.gates import CallAnswer
from contextos.contracts.ports.outside import Adapter
from contextos.packs.building import DeclaredPack
from contextos.runtime.environment import RunLimits
from contextos.testing import InMemory, in_memory
from tests.observed.shop import CALLS_OF_SESSION, RecordedCall, World, tools_of

TENANT, USER, INTERN, AGENT, LEAD = "shop_acme", "ana", "ivan", "agt_shop", "olga"
LIMITS: Final = RunLimits(max_tool_calls=CALLS_OF_SESSION + 10)


def _user(user_id: str, role: str) -> dict[str, Any]:
    return {"user_id": user_id, "role": role, "roles": [role], "scopes": [], "delegation_live": True}


DIRECTORY: Final[Mapping[str, Any]] = {
    TENANT: {
        "users": [_user(USER, "support"), _user(INTERN, "intern")],
        "agents": [
            {
                "agent_id": AGENT,
                "agent_urn": "agent:acme/shop@1.0.0",
                "workload_identity": "spiffe://acme/agents/shop",
                "role": "shop",
                "owner": "boss",
                "lifecycle": "active",
                "ceiling": "destructive",
                "scopes": [],
            }
        ],
        "delegations": {
            f"tok_{user}": {"subject": user, "agent_id": AGENT, "scopes": [], "expires_at": 4_102_444_800}
            for user in (USER, INTERN)
        },
        "approvers": [{"approver_id": LEAD, "roles": ["lead"], "granted_by": {"lead": "boss"}, "keys": []}],
    }
}


def observing(world: World, **fields: Any) -> DeclaredPack:
    """A strict pack over the shop's tools that observes: enforced, it would ask about every write."""
    told = {"who": ["support"], "approver": "lead", "mode": "observe", "version": "0.1.0", "tenant": TENANT}
    budget = {"max_tool_calls": LIMITS.max_tool_calls, "wall_clock_ms": LIMITS.wall_clock_ms}
    return pack("shop.watch", tools=[tools_of(world)], **{**told, "budget": budget, **fields})


def deployed(declared: DeclaredPack, **more: Any) -> InMemory:
    return in_memory(packs=[declared], directory=DIRECTORY, limits=LIMITS, **more, lint=False)


def open_gate(app: Any, session: str, user: str = USER) -> Any:
    return app.gate(session=session, user=user, token=f"tok_{user}", agent=AGENT)


def played(app: Any, calls: Iterable[RecordedCall]) -> list[CallAnswer]:
    """Make the calls, each session through a gate of its own, and finish every session as approved."""
    gates: dict[str, Any] = {}
    answers = []
    for one in calls:
        gate = gates.setdefault(one.session, None) or open_gate(app, one.session)
        gates[one.session] = gate
        answers.append(gate.call(one.tool, one.args, call_id=one.call_id))
    for gate in gates.values():
        gate.finish("approved")
    return answers


async def unobserved(adapter: Adapter, calls: Iterable[RecordedCall]) -> list[Any]:
    """Make the calls with nothing in between, and return their outputs."""
    from contextos.contracts.encoding.defaults import with_defaults
    from contextos.contracts.envelopes.tool import CallContext

    outputs = []
    schemas = {one.name: one.input_schema for one in adapter.describe().capabilities}
    for number, one in enumerate(calls):
        context = CallContext(
            TENANT, "run_0", f"tool_{number:016x}", f"ik_{number:016d}", 4_102_444_800_000_000, 10_000
        )
        name = one.tool.removeprefix("shop.")
        reply = await adapter.call(name, with_defaults(schemas[name], one.args), context)
        outputs.append(reply.output)
    return outputs
