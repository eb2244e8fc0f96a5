"""A guardrail about a tool that the pack does not list ends no run, and a second role counts as the first does."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from contextos.contracts.ports.gates import Done, Refused
from contextos.packs.declaration import PackDeclaration
from contextos.packs.expansion import expand
from contextos.testing import in_memory
from tests.bank import ORDERS, PAY, bank_pack, open_gate
from tests.deployers import TENANT, people
from tests.world import run


@pytest.mark.parametrize(("named", "ends"), [("bank.rollback", False), ("bank.wire", False), (PAY, True)])
def test_only_a_tool_that_the_pack_lists_escalates_a_run(named: str, ends: bool) -> None:
    async def play() -> None:
        paid: list[Any] = []
        declared = bank_pack(paid)
        told = {"name": "acme.bank", "version": "1.0.0", "tenant": TENANT, "who": ["deployer"], "tools": [PAY]}
        auto = [{"tools": [PAY], "bounds": {"order": {"enum": ORDERS}}}]
        declaration = PackDeclaration.model_validate(told | {"auto_approve": auto})
        document = copy.deepcopy(dict(expand(declaration, [one.describe() for one in declared.adapters]).document))
        about = {"==": [{"var": "capability.capability_id"}, named]}
        document["policy_layer"]["guardrails"]["must_escalate"] = [about]
        async with in_memory(packs=[document], adapters=declared.adapters, directory=people(), lint=False) as app:
            gate = await open_gate(app, "s")
            said = await gate.call(PAY, {"order": "ord_1", "amount": 1}, call_id="one")
            if ends:
                assert isinstance(said, Refused)
                assert (said.reasons[0].code, said.ended, paid) == ("must_escalate", True, [])
                return
            assert isinstance(said, Done), said
            record = (await gate.finish("approved")).record
            assert (record["status"], record["controls_active"]["must_escalate"]) == ("DECIDED", [])

    run(play())


@pytest.mark.parametrize("who", ["the pack", "the intent"])
def test_who_has_a_second_role_may_what_the_first_role_may(who: str) -> None:
    def held(role: str, *more: str) -> dict[str, Any]:
        directory = people()
        directory[TENANT]["users"][0] |= {"role": role, "roles": list(more)}
        return directory

    async def play() -> None:
        paid: list[Any] = []
        more = {"intents": {"acme.bank": {"who": ["deployer"]}}, "who": ["clerk"]} if who == "the intent" else {}
        pack = bank_pack(paid, **more)
        for number, (directory, allowed) in enumerate(
            [(held("reader", "deployer"), True), (held("deployer"), True), (held("reader", "auditor"), False)]
        ):
            async with in_memory(packs=[pack], directory=directory, lint=False) as app:
                gate = await open_gate(app, f"s{number}")
                said = await gate.call(PAY, {"order": "ord_1", "amount": number}, call_id="one")
                assert isinstance(said, Done) is allowed, said
        assert paid == [("ord_1", 0), ("ord_1", 1)]

    run(play())
