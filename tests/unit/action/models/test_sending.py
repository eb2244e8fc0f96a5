"""`ModelSender`: when a call is sent, when it is not, and what one that ends badly leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.action.models.sending import ModelSender
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.envelopes.models import ModelProfile
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply, OnText
from contextos.errors import InvalidInput, Problem
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from tests.attacks.modelled import GOOD, profile
from tests.world import TENANT, ManualClock

GOOD_REPLY = ModelReply("answered", "yes")


class Provider:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self.asked: list[ModelCall] = []
        self._answer = answer

    async def complete(self, call: ModelCall, _: OnText | None = None) -> ModelReply:
        self.asked.append(call)
        reply = self._answer()
        return await reply if asyncio.iscoroutine(reply) else reply


class Sending:
    """A sender with its clock, provider and pauses."""

    def __init__(self, answer: Callable[[], Any] = lambda: GOOD_REPLY, **stated: Any) -> None:
        self.clock, self.provider, self.paused = ManualClock(), Provider(answer), list[int]()
        self.profile = ModelProfile.model_validate(profile(GOOD, **stated))
        breakers = CircuitBreakers(AdmissionLimits(breaker_failures_in_a_row=2, breaker_cool_down_ms=20_000))
        self.sender = ModelSender(
            {"scripted": self.provider}, self._key_of, self.clock, breakers, AsyncioConcurrency(), self._pause
        )

    async def send(self, not_before_us: int = 0, timeout_ms: int = 5_000) -> ModelReply:
        call = ModelCall(self.profile, (ModelMessage("user", "?"),), 10, timeout_ms, timeout_ms, ())
        return await self.sender.send(TENANT, call, not_before_us)

    def unavailable(self) -> Any:
        return self.sender.unavailable(TENANT, [self.profile])

    def _key_of(self, name: str) -> str:
        if name == "main":
            return "k-1"
        raise InvalidInput(Problem("/models", "no_key", f"there is no key `{name}`", "add it"))

    async def _pause(self, us: int) -> None:
        self.paused.append(us)
        self.clock.at_us += us


def test_a_call_has_the_key_of_its_profile_and_what_is_left_of_its_time() -> None:
    sending = Sending(credential="main")
    assert asyncio.run(sending.send()) == GOOD_REPLY
    (call,) = sending.provider.asked
    assert (call.key, 4_900 < call.timeout_ms < 5_000) == ("k-1", True)


def test_without_its_key_nothing_is_sent() -> None:
    sending = Sending(credential="other")
    reply = asyncio.run(sending.send())
    assert (reply.outcome, reply.billed, sending.provider.asked) == ("unauthorized", False, [])
    assert "there is no key `other`" in reply.detail


@pytest.mark.parametrize(
    ("wire", "remedy"),
    [
        ("openai", "install `contextos[openai]`"),
        ("openai_responses", "install `contextos[openai]`"),
        ("anthropic", "install `contextos[anthropic]`"),
        ("scripted", "name a `script` in `[models]` of its settings"),
    ],
)
def test_of_a_wire_that_is_not_spoken_is_said_what_brings_it(wire: Any, remedy: str) -> None:
    sending = Sending(**({"wire": wire, "endpoint": "https://a.example"} if wire != "scripted" else {}))
    sending.sender._providers = {}
    reply = asyncio.run(sending.send())
    assert (reply.outcome, reply.billed) == ("unavailable", False)
    assert reply.detail == f"this deployment speaks no `{wire}`; {remedy}"


def test_a_retry_time_within_the_call_is_waited_for_and_a_later_one_is_not() -> None:
    sending = Sending()
    now_us = sending.clock.at_us
    assert asyncio.run(sending.send(now_us + 2_000_000)).outcome == "answered"
    assert 1_900_000 < sum(sending.paused) <= 2_000_000
    reply = asyncio.run(sending.send(sending.clock.at_us + 6_000_000))
    assert (reply.outcome, reply.billed, len(sending.paused), len(sending.provider.asked)) == (
        "overloaded",
        False,
        1,
        1,
    )


def test_a_circuit_opens_after_failures_and_lets_one_call_through_later() -> None:
    replies = iter([ModelReply("unavailable"), ModelReply("cut"), ModelReply("unavailable"), GOOD_REPLY])
    sending = Sending(lambda: next(replies))
    for _ in range(2):
        asyncio.run(sending.send())
    assert set(sending.unavailable()) == {"failed"}
    refused = asyncio.run(sending.send())
    assert (refused.outcome, refused.billed, refused.detail) == ("unavailable", False, "its circuit opened meanwhile")
    sending.clock.at_us += 21_000_000
    assert sending.unavailable() is None
    assert asyncio.run(sending.send()).outcome == "unavailable"
    assert set(sending.unavailable()) == {"failed"}
    sending.clock.at_us += 21_000_000
    assert asyncio.run(sending.send()).outcome == "answered"
    assert sending.unavailable() is None


@pytest.mark.parametrize("outcome", ["unavailable", "timed_out", "cut", "malformed", "overloaded"])
def test_two_failures_of_a_kind_open_the_circuit(outcome: Any) -> None:
    sending = Sending(lambda: ModelReply(outcome))
    for _ in range(2):
        asyncio.run(sending.send())
    assert set(sending.unavailable()) == {"failed"}


@pytest.mark.parametrize("outcome", ["refused", "truncated", "rejected", "too_large", "unauthorized", "unknown_model"])
def test_an_answer_of_a_provider_opens_no_circuit(outcome: Any) -> None:
    sending = Sending(lambda: ModelReply(outcome))
    for _ in range(5):
        asyncio.run(sending.send())
    assert sending.unavailable() is None


def test_what_a_provider_raises_opens_its_circuit_and_frees_its_place() -> None:
    def raises() -> ModelReply:
        raise RuntimeError("x")

    sending = Sending(raises, max_concurrent=1)
    for _ in range(2):
        assert asyncio.run(sending.send()).outcome == "unavailable"
    assert set(sending.unavailable()) == {"failed"}


def test_calls_at_once_and_in_a_minute_are_limited() -> None:
    async def at_once() -> list[ModelReply]:
        held = asyncio.Event()

        async def wait() -> ModelReply:
            await held.wait()
            return GOOD_REPLY

        sending = Sending(wait, max_concurrent=1)
        first = asyncio.ensure_future(sending.send())
        await asyncio.sleep(0)
        assert set(sending.unavailable()) == {"busy"}
        second = await sending.send()
        held.set()
        return [await first, second, await sending.send()]

    first, second, third = asyncio.run(at_once())
    assert [one.outcome for one in (first, second, third)] == ["answered", "overloaded", "answered"]
    assert not second.billed
    sending = Sending(calls_per_minute=2)
    assert [asyncio.run(sending.send()).outcome for _ in range(3)] == ["answered", "answered", "overloaded"]
    sending.clock.at_us += 60_000_000
    assert asyncio.run(sending.send()).outcome == "answered"


def test_a_call_that_is_busy_leaves_the_trial_of_a_circuit_to_another() -> None:
    replies = iter([ModelReply("unavailable"), ModelReply("unavailable"), GOOD_REPLY])
    sending = Sending(lambda: next(replies), calls_per_minute=2)
    for _ in range(2):
        asyncio.run(sending.send())
    sending.clock.at_us += 21_000_000
    assert asyncio.run(sending.send()).detail == "its limit of calls was used up meanwhile"
    sending.clock.at_us += 40_000_000
    assert asyncio.run(sending.send()).outcome == "answered"


def test_a_call_that_is_cancelled_frees_its_place() -> None:
    async def whole() -> Any:
        sending = Sending(lambda: asyncio.sleep(60), max_concurrent=1)
        task = asyncio.ensure_future(sending.send())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return sending.unavailable()

    assert asyncio.run(whole()) is None
