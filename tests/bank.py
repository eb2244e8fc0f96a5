"""A bank in memory with rules above its pack: what the attacks on sums, budgets and prohibitions play."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import contextos
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import POLICY_TYPE
from contextos.deployment.acts.governance import activate_policies
from contextos.testing import TEST_OPERATOR, Person, in_memory
from contextos.trust.seal import seal
from tests.deployers import TENANT, people
from tests.world import run

Play = Callable[[Any, list[tuple[str, int | None]]], Awaitable[None]]

PAY = "bank.pay"
WIRE = "bank.wire"


def bank_pack(paid: list[tuple[str, int | None]], **more: Any) -> Any:
    """A pack whose writes ask nobody, for whatever they are called with."""

    @contextos.write(risk="irreversible", idempotency="none", destinations=[])
    def pay(order: str, amount: int | None = None, note: str = "") -> str:
        """Pay an order."""
        paid.append((order, amount))
        return "paid"

    @contextos.write(risk="irreversible", idempotency="none", destinations=[])
    def rollback(order: str) -> str:
        """Pay back an order."""
        paid.append((order, 0))
        return "paid back"

    @contextos.write(risk="irreversible", idempotency="none", destinations=[])
    def wire(bill: str, rupees: int) -> str:
        """Pay an order by wire: the same effect as `pay`, under other names."""
        paid.append((bill, rupees))
        return "wired"

    auto = [
        {"tools": ["bank.pay", "bank.rollback"], "bounds": {"order": {"enum": ORDERS}}},
        {"tools": ["bank.wire"], "bounds": {"bill": {"enum": ORDERS}}},
    ]
    named: dict[str, Any] = {"who": ["deployer"], "approver": "oncall", "auto_approve": auto, **more}
    tools = [contextos.toolset("bank", [pay, rollback, wire])]
    return contextos.pack("acme.bank", version="1.0.0", tenant=TENANT, tools=tools, **named)


ORDERS = ["ord_1", "ord_1 ", "ORD_1", "ord_1\u200b", "o\u00adrd_1", "\uff4frd_1", "ord_1\ufe0f", " ord_1", "ord_2"]


def in_bank(play: Play, *rules: dict[str, Any], pack: Mapping[str, Any] = MappingProxyType({}), **bundle: Any) -> None:
    """Play in a bank in which the tenant has these rules in force. `pack` is what its pack declares otherwise."""
    paid: list[tuple[str, int | None]] = []

    async def inside() -> None:
        async with in_memory(packs=[bank_pack(paid, **pack)], directory=people(), lint=False) as app:
            if rules:
                dsl = {"language": "jsonlogic", "rules": list(rules)}
                house = {"bundle_id": "POLICY_HOUSE", "policy_dsl": dsl, **bundle}
                content = canonical({"version": "1.0.0", "tenant": TENANT, "bundle": house})
                by = Person(TEST_OPERATOR).actor()
                await app.publish(seal(POLICY_TYPE, content, app.keys, "pack"), by=by)
                version = (await app.artifacts.active(TENANT)).version
                await activate_policies(
                    app.deployment, TENANT, [("tenant", "POLICY_HOUSE@1.0.0")], expected=version, by=by
                )
            await play(app, paid)

    run(inside())


async def open_gate(app: Any, session: str, **more: Any) -> Any:
    return await app.gate(session=session, user="ana", token="tok_ana", agent="agt_deploy", **more)
