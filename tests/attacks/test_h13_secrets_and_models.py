"""H13: secrets of many shapes are in facts, tool results, arguments, and in what a provider itself says. None of them
is in a call of a model, in the journal, in a log or in an error; nor is the key of a provider.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.action.models.sending import ModelSender
from contextos.adapters.function.adapter import BusinessError, log_fault
from contextos.adapters.function.loading import load_function_adapters
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.envelopes.models import ModelProfile
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply, ModelUsage, OnText, ProposedCall
from contextos.telemetry.logs import configure
from contextos.workspace.application import App
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.models import Providers
from tests.attacks.modelled import (
    CHECK,
    GOOD,
    LOOKUP,
    Answering,
    deployed,
    entries,
    failures,
    planned_pack,
    profile,
    refund,
    require_sound,
    rules,
    session_pack,
)
from tests.loopback import Asked, serving
from tests.planted import forms, planted
from tests.world import EXAMPLE, TENANT, ManualClock, example

SHAPES = planted()
SAYS = "; ".join(one.text for one in SHAPES.values())
KEY = "prov-key-7fQ2xY9LmZ4vT1"
OBSERVED = {"observed_at": "2026-05-03T09:30:00Z", "integrity": "trusted", "classification": "CONFIDENTIAL"}


def facts() -> dict[str, Any]:
    graph: dict[str, Any] = example("graph.json")
    for number, one in enumerate(SHAPES.values()):
        edge = {"src": "order:ord_881", "predicate": "noted", "dst": f"order:note_{number}", "value": one.text}
        graph["edges"].append(edge | {"evidence_ref": f"artifact:note_{number}#rev_1", **OBSERVED})
        graph["nodes"].append({"ceid": f"order:note_{number}", "type": "order", "properties": {}})
    return graph


class Talkative:
    """The orders of the shop, whose answers and errors have every secret."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def describe(self) -> AdapterDefinition:
        definition: AdapterDefinition = self._inner.describe()
        return definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if args["order_id"] != "ord_881":
            raise BusinessError("unknown", SAYS)
        reply: AdapterReply = await self._inner.call(capability, args, context)
        return reply.model_copy(update={"output": {**reply.output, "status": SAYS}})

    async def lookup(self, capability: str, key: str, context: CallContext) -> AdapterReply | None:
        raise AssertionError("a read is not looked up")


def leaks(places: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    wanted = {form: name for name, one in SHAPES.items() for form in [*forms(one.secret), one.secret[:-4]]}
    wanted |= dict.fromkeys(forms(KEY), "key of the provider")
    return sorted({(place, name) for place, text in places for form, name in wanted.items() if form in text})


def shown(app: App, run_id: str, models: Answering) -> Iterator[tuple[str, str]]:
    for number, call in enumerate(models.asked):
        yield f"call {number}", repr((call.messages, call.tools, call.output_schema, dict(call.headers)))
        yield f"repr {number}", repr(call)
    for kind, key, body in entries(app, run_id):
        yield f"{kind} {key}", repr(body)
    yield "view", repr(app.deployment.view(TENANT, run_id))
    yield "story", repr(app.runs.timeline(app.deployment.view(TENANT, run_id)))


def says(*calls: ProposedCall, outcome: Any = "answered") -> Any:
    """An answer with every secret in each of its texts."""
    usage = ModelUsage({"input": 100, "output": 10}, reported={"note": SAYS, SAYS[:200]: 1})

    def answer(_: ModelCall) -> ModelReply:
        return ModelReply(outcome, SAYS, calls, SAYS, SAYS, usage, detail=f"{SAYS} Authorization: Bearer {KEY}")

    return answer


def made(number: int, call: Mapping[str, Any], **args: Any) -> ProposedCall:
    return ProposedCall(f"c{number}", call["tool"], {**call["args"], **args})


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = configure(stream, as_json=True)
    yield stream
    logging.getLogger("contextos").removeHandler(handler)


@pytest.fixture
def talkative(tmp_path: Path) -> list[Any]:
    loaded = load_function_adapters("shop.py:adapters", None, root=EXAMPLE, workspace=tmp_path)
    return [Talkative(one) if one.describe().adapter_id == "adp_orders" else one for one in loaded.adapters]


def with_notes(pack: dict[str, Any]) -> dict[str, Any]:
    pack["intelligence_refs"]["ontology"]["relationship_types"].append("noted")
    pack["policy_layer"]["guardrails"]["redaction_rules"].append("secret")
    return pack


def test_a_session_of_a_model_shows_and_keeps_no_secret(tmp_path: Path, talkative: list[Any], log: io.StringIO) -> None:
    end = ProposedCall("end", "finish", {"outcome": "escalated", "reason": SAYS[:1_900]})
    models = Answering(
        says(outcome="unavailable"),
        says(made(0, LOOKUP)),
        says(made(1, LOOKUP, order_id=SAYS)),
        says(made(2, LOOKUP, order_id="ord_404")),
        says(made(3, CHECK, note=SAYS)),
        says(ProposedCall("c4", f"drop.{next(iter(SHAPES.values())).text}", {})),
        says(end),
    )
    pack = with_notes(session_pack())
    cheap = {"currency": "USD", "as_of": "2026-11-01", "prices": {"input": "0.01", "output": "0.01"}}
    artifacts = (profile(GOOD, prices=cheap), rules(GOOD))
    with deployed(tmp_path, pack, models, *artifacts, adapters=talkative, facts=facts()) as app:
        view = refund(app)
        assert leaks(shown(app, view.run_id, models)) == []
        require_sound(app, view.run_id)
    seen = "".join(message.text for message in models.asked[-1].messages)
    assert "[redacted:secret]" in seen
    assert '"tool":"adp_orders.lookup"' in seen
    assert '"predicate":"noted"' in seen.replace("\\", "")
    assert len(models.asked) == 7, view
    assert leaks(iter([("log", log.getvalue()), ("answer", repr(view))])) == []


def test_a_plan_of_a_model_shows_and_keeps_no_secret(tmp_path: Path, talkative: list[Any], log: io.StringIO) -> None:
    models = Answering(says(), says(outcome="cut"))
    pack = with_notes(planned_pack())
    with deployed(tmp_path, pack, models, adapters=talkative, facts=facts()) as app:
        view = refund(app)
        assert leaks(shown(app, view.run_id, models)) == []
        require_sound(app, view.run_id)
    assert len(models.asked) > 1
    assert leaks(iter([("log", log.getvalue()), ("answer", repr(view))])) == []


class Leaking:
    """A provider that says its key wherever it can."""

    def __init__(self, how: str) -> None:
        self._how = how

    async def complete(self, call: ModelCall, _: OnText | None = None) -> ModelReply:
        if self._how == "raises":
            raise RuntimeError(f"the key {call.key} is wrong")
        if self._how == "answers":
            said = f"I was called with Authorization: Bearer {call.key}"
            made = ProposedCall(f"c/{call.key}", f"mail.{call.key}", {said: [said, f"{call.key}".encode().hex()]})
            usage = ModelUsage({"input": 1, "output": 1}, said, {said: said})
            return ModelReply("answered", said, (made,), said, said, usage, detail=said)
        return ModelReply("unauthorized", detail=repr(call))


@pytest.mark.parametrize("how", ["raises", "states", "answers"])
def test_the_key_of_a_provider_is_in_no_text(how: str, log: io.StringIO) -> None:
    breakers = CircuitBreakers(AdmissionLimits())

    async def pause(_: int) -> None: ...

    sender = ModelSender(
        {"scripted": Leaking(how)}, lambda _: KEY, ManualClock(), breakers, AsyncioConcurrency(), pause, log_fault
    )
    known = ModelProfile.model_validate(profile(GOOD, credential="main"))
    call = ModelCall(known, (ModelMessage("user", "?"),), 10, 1_000, 1_000, ())
    reply = asyncio.run(sender.send(TENANT, call))
    assert reply.outcome in ("unavailable", "unauthorized", "answered")
    assert leaks(iter([("reply", repr(reply)), ("log", log.getvalue()), ("call", repr(call))])) == []
    if how == "raises":
        assert "foreign code raised" in log.getvalue()


def test_a_traceback_of_a_call_has_no_key() -> None:
    known = ModelProfile.model_validate(profile(GOOD, credential="main"))
    call = ModelCall(known, (ModelMessage("user", SAYS),), 10, 1_000, 1_000, (), key=KEY, headers={"a": KEY})
    try:
        raise RuntimeError(call)
    except RuntimeError as error:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert leaks(iter([("traceback", text), ("repr", f"{call!r} {call}")])) == []


CALLS = [
    LOOKUP,
    {**LOOKUP, "args": {"order_id": "ord_404"}},
    {"tool": "finish", "args": {"outcome": "denied", "reason": "x"}},
]


def chat(number: int, name: str, args: str) -> dict[str, Any]:
    made = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": args}}
    message = {"role": "assistant", "content": SAYS, "tool_calls": [made]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def responses(number: int, name: str, args: str) -> dict[str, Any]:
    text = {"type": "output_text", "text": SAYS, "annotations": []}
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    made = {"type": "function_call", "id": "f", "status": "completed", "call_id": f"c{number}", "name": name}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    output = [said, {**made, "arguments": args}]
    return {"id": "x", "object": "response", "status": "completed", "model": "m", "output": output, "usage": usage}


def messages(number: int, name: str, args: str) -> dict[str, Any]:
    content = [{"type": "text", "text": SAYS}, {"type": "tool_use", "id": f"c{number}", "name": name}]
    content[1]["input"] = json.loads(args)
    known = {"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
    return {**known, "content": content, "usage": {"input_tokens": 10, "output_tokens": 5}}


class Keyed:
    """The real wires, with the key that a setting would give them."""

    unsafe = ("unsafe_test_models",)

    def __init__(self, internal: str) -> None:
        self._providers = Providers([internal], None)

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        return await self._providers[call.profile.wire].complete(replace(call, key=KEY), on_text)


@pytest.mark.parametrize(("wire", "says"), [("openai", chat), ("openai_responses", responses), ("anthropic", messages)])
def test_no_request_body_of_a_wire_has_a_secret_and_the_key_is_in_a_header_alone(
    wire: str, says: Any, tmp_path: Path, talkative: list[Any], log: io.StringIO
) -> None:
    bodies, heads = list[str](), list[str]()

    def answer(asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        call = CALLS[min(len(bodies), len(CALLS) - 1)]
        bodies.append(asked.body.decode())
        heads.append(str(asked.headers))
        said = says(len(bodies), call["tool"].replace(".", "_"), json.dumps(call["args"]))
        return 200, json.dumps(said).encode(), {"Content-Type": "application/json"}

    with serving(answer) as address:
        host = address.partition("://")[2].rstrip("/")
        cheap = {"currency": "USD", "as_of": "2026-11-01", "prices": {"input": "0.01", "output": "0.01"}}
        known = profile(GOOD, wire=wire, endpoint=f"http://{host}/v1", prices=cheap)
        models = Keyed(host)
        more: dict[str, Any] = {"adapters": talkative, "facts": facts(), "egress": {TENANT: [host]}}
        with deployed(tmp_path, with_notes(session_pack()), models, known, rules(GOOD), **more) as app:
            view = refund(app)
            assert view.state == "rejected", failures(view)
            kept = [(f"{kind} {key}", repr(body)) for kind, key, body in entries(app, view.run_id)]
            require_sound(app, view.run_id)
    assert len(bodies) == 3
    assert all(KEY in one for one in heads)
    assert "[redacted:secret]" in bodies[-1]
    texts = [("body", one) for one in bodies] + [("log", log.getvalue()), ("answer", repr(view)), *kept]
    assert leaks(iter(texts)) == []
