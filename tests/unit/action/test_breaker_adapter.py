"""A run's path out: its circuit hears of an answer as soon as it is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from contextos.action.breaker import CircuitBreakers, CircuitKey
from contextos.action.breaker_adapter import BreakerAdapter, OutboundPath, SharedYield
from contextos.action.foreign_code import ForeignCode, ignore_fault
from contextos.contracts.admission_limits import AdmissionLimits, YieldedTurn
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.ports.concurrency import Sequential
from contextos.errors import Unavailable
from contextos.store.memory.stores import MemoryStores
from tests.suites.store_suite import SettableClock
from tests.world import run

PLACE: CircuitKey = ("acme", "adp", "pay")
COOL_US = 10_000


class Answering:
    """An adapter that answers, or is away."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers

    async def call(self, *_: Any) -> AdapterReply:
        if not self.answers:
            raise Unavailable("adp", "it is away")
        return AdapterReply(output={})

    lookup: Any = call

    def describe(self) -> AdapterDefinition:
        raise NotImplementedError


@pytest.mark.requirement("A-BREAKER")
@pytest.mark.parametrize("answers", [True, False])
def test_a_circuit_learns_the_outcome_of_a_probe_before_the_run_waits_for_a_turn(
    answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "contextos.action")
    breakers = CircuitBreakers(AdmissionLimits(breaker_failures_in_a_row=1, breaker_cool_down_ms=COOL_US // 1_000))
    clock, seen = SettableClock(), list[int]()

    @asynccontextmanager
    async def yield_turn() -> AsyncIterator[YieldedTurn]:
        try:
            yield YieldedTurn()
        finally:
            clock.us += 1_000
            seen.append(breakers.open_until_us(PLACE, clock.us))

    async def act() -> None:
        path = OutboundPath(
            "acme",
            MemoryStores(clock=clock).tenant("acme"),
            clock,
            "here",
            breakers,
            SharedYield(yield_turn),
            ForeignCode(Sequential(), ignore_fault),
        )
        for answered in (False, answers):
            context = CallContext("acme", "run_1", "tool_1", "ik_0123456789abcdef", clock.us + 1_000_000, 1_000)
            with suppress(Unavailable):
                await BreakerAdapter("adp", Answering(answered), path).call("pay", {}, context)
            clock.us += COOL_US

    began_us = clock.us
    run(act())
    second_us = began_us + COOL_US + 1_000
    assert seen == [began_us + COOL_US, 0 if answers else second_us + COOL_US]
    # A half-open circuit is only a trial, and is not logged.
    logged = [(one.getMessage(), vars(one)["tenant"], vars(one)["capability"]) for one in caplog.records]
    after = "circuit closed" if answers else "circuit opened"
    assert logged == [("circuit opened", "acme", "adp.pay"), (after, "acme", "adp.pay")]
