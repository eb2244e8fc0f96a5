"""D46: what telemetry sends has no content of a run, and nobody can hide a run from it.

The attackers write a plain word, which no pattern of secrets finds, into everything that they can write: a requester
into the message, the facts, the session and the headers of the trace; an adapter into its outputs, errors, codes and
mutations; an approver into the reason. And a requester chooses a trace id that a share of traces leaves out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.tool import AdapterReply, CallContext, ToolError
from contextos.deployment.operator import answer_approval
from contextos.errors import Unavailable
from contextos.telemetry.exporter import Telemetry, otlp
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.seal import kid_of
from tests.otlp import Collector, attributes_of, collecting
from tests.world import APPROVER, APPROVER_KEY, TENANT, TestWorld, open_world, public_key, request, run

WORD = "Pemberley"
"""Written in one case, because names of the field are lower case."""
PEOPLE = ("usr_771", "user_finance_lead_77")


@contextmanager
def watched(path: Path, act: Callable[[TestWorld], Awaitable[None]], *, share: float = 1.0) -> Iterator[Collector]:
    """Run `act` in a world whose telemetry goes to a collector, and give the collector."""
    with collecting() as collector:

        async def go() -> None:
            world = await open_world(path)
            telemetry = Telemetry(otlp(collector.url), sample_share=share)
            world.deployment.ports = replace(world.deployment.ports, telemetry=telemetry)
            try:
                await act(world)
            finally:
                telemetry.close()
            collector.raw.append(telemetry.prometheus_text())

        run(go())
        yield collector


class Speaking:
    """An adapter that says the word wherever it can: with its output, as an error, or by raising it."""

    def __init__(self, inner: Any, how: str) -> None:
        self._inner, self._how = inner, how

    def describe(self) -> Any:
        return self._inner.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if self._how == "error":
            error = ToolError(code=f"code_{WORD}", message=f"{WORD} said no", pointer=f"/{WORD}", remedy=WORD)
            return AdapterReply(error=error)
        if self._how == "down":
            raise Unavailable(WORD, f"{WORD} is down")
        if self._how == "raises":
            raise RuntimeError(WORD)
        reply: AdapterReply = await self._inner.call(capability, args, context)
        return replace(reply, mutations=(*reply.mutations, WORD) if reply.mutations else ())

    async def lookup(self, capability: str, key: str, context: CallContext) -> AdapterReply | None:
        found: AdapterReply | None = await self._inner.lookup(capability, key, context)
        return found


def said_everywhere(amount: int, request_id: str) -> dict[str, Any]:
    body = request(amount, request_id, **{WORD: WORD, "note": WORD})
    body["input"]["message"] = WORD
    body["trace"] |= {"tracestate": f"acme={WORD}", "baggage": f"who={WORD}"}
    return body


def leaked(collector: Collector) -> list[str]:
    forms = [WORD, *PEOPLE, "ord_881", "4200", "9900"]
    return sorted({one for raw in collector.raw for one in forms if one.encode() in raw})


@pytest.mark.parametrize("how", ["speaks", "error", "down", "raises"])
@pytest.mark.parametrize("name", ["adp_orders", "adp_payments"])
def test_nothing_that_a_requester_an_adapter_or_an_approver_wrote_is_sent(how: str, name: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        world.adapters[name] = Speaking(world.adapters[name], how)
        view = await world.invoke(said_everywhere(4200, "req_1"))
        if view.waiting is not None:

            def vouch(said: Mapping[str, Any]) -> dict[str, Any]:
                public = public_key(APPROVER_KEY)
                return {"kind": "jws", "token": sign_approval(APPROVER_KEY, kid_of(public), said)}

            await answer_approval(
                world.deployment,
                TENANT,
                view.run_id,
                approver_id=APPROVER,
                verdict="approved",
                reason=WORD,
                binding_digest=await world.binding_digest(view.run_id),
                vouch=vouch,
            )
            await world.deployment.advance(TENANT, view.run_id)
        for _ in range(20):
            view = await world.deployment.view(TENANT, view.run_id)
            if view.ended or view.waiting is not None:
                break
            world.clock.at_us += 60_000_000
            await world.deployment.advance(TENANT, view.run_id)

    with watched(tmp_path, act) as collector:
        assert collector.raw
        assert leaked(collector) == []


@pytest.mark.parametrize("field", ["intent", "agent", "pack"])
def test_a_name_that_a_request_only_states_is_not_sent(field: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        body = request(900, "req_1")
        if field == "intent":
            body["input"]["intent"] = WORD
        elif field == "agent":
            body["agent"]["agent_id"] = WORD
        else:
            body["context_pack_refs"] = [f"{WORD.lower()}@1.0.0"]
        view = await world.invoke(body)
        assert view.ended
        assert view.state != "completed"

    with watched(tmp_path, act) as collector:
        (root,) = [one for one in collector.spans if one.name.startswith("invoke_agent")]
        assert attributes_of(root)["contextos.end"] != "completed"
        assert not [raw for raw in collector.raw if WORD.lower().encode() in raw.lower()]


def test_no_choice_of_a_trace_id_hides_a_run_that_did_something(tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        for at, low in enumerate(("f" * 16, "8" * 16, "0" * 15 + "1")):
            body = request(900 + at, f"req_{at}")
            body["trace"] = {"trace_id": "1" * 16 + low, "span_id": "0" * 15 + "1", "trace_flags": "00"}
            assert (await world.invoke(body)).state == "completed"

    with watched(tmp_path, act, share=0.0) as collector:
        assert len(collector.named("invoke_agent agt_support")) == 3
