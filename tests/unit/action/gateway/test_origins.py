"""The guard about destinations that only untrusted content has."""

from __future__ import annotations

import asyncio

from contextos.action.gateway.guarded_call import Refusal
from contextos.action.gateway.origins import destinations_trusted
from tests.unit.action.gateway.origin_calls import call, context


def test_without_a_gate_the_write_is_refused_and_says_which_argument_and_why() -> None:
    refusal = asyncio.run(destinations_trusted(context(), call(destinations=("to",))))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.pointer) == ("untrusted_destination", "/to")
    assert "tool:mail.read" in refusal.detail
    for passes in (call(gates=("GATE_A",)), call(destinations=("cents",)), call(kind="read")):
        assert asyncio.run(destinations_trusted(context(), passes)) is None
