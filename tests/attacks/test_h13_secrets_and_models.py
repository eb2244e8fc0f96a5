"""H13: secrets of many shapes are in facts, memories, tool results, arguments, and in what a provider itself says. None
of them is in a call of a model, in the body of a request, in the journal, in a log, a span or an error; nor is the key
of a provider.
"""

from __future__ import annotations

import asyncio
import io
import logging
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contextos.action.breaker import CircuitBreakers
from contextos.action.models.sending import ModelSender
from contextos.adapters.function.adapter import BusinessError, log_fault
from contextos.adapters.function.loading import load_function_adapters
from contextos.contracts.acts import PackPin
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.envelopes.models import ModelProfile, ModelWire
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply, ModelUsage, OnText, ProposedCall
from contextos.deployment.acts.governance import pin_packs
from contextos.deployment.acts.memories import review_memory
from contextos.deployment.deployment import Deployment
from contextos.intelligence.memory import list_candidates
from contextos.telemetry.exporter import Telemetry, otlp
from contextos.telemetry.logs import configure
from contextos.testing import Person
from contextos.trust import redact
from contextos.workspace.application import App
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.in_memory import TEST_OPERATOR
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
from tests.model_wires import PRICES, WORDS, RealWire, calling, conversation
from tests.otlp import collecting
from tests.planted import forms, planted
from tests.world import EXAMPLE, INTENT, TENANT, ManualClock, example, request

SHAPES = planted()
SAYS = "; ".join(one.text for one in SHAPES.values())
KEY = "prov-key-7fQ2xY9LmZ4vT1"
OLD = "ctxpack.support@1.0.0"
OBSERVED = {"observed_at": "2026-05-03T09:30:00Z", "integrity": "trusted", "classification": "CONFIDENTIAL"}


def facts() -> dict[str, Any]:
    graph: dict[str, Any] = example("graph.json")
    for number, one in enumerate(SHAPES.values()):
        edge = {"src": "order:ord_881", "predicate": "noted", "dst": f"order:note_{number}", "value": one.text}
        graph["edges"].append(edge | {"evidence_ref": f"artifact:note_{number}#rev_1", **OBSERVED})
        graph["nodes"].append({"ceid": f"order:note_{number}", "type": "order", "properties": {}})
    remark = {"src": "order:ord_881", "predicate": "remarked", "dst": "order:note_0", "value": SAYS}
    graph["edges"].append(remark | {"evidence_ref": "artifact:remark#rev_1", **OBSERVED})
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
    pack["intelligence_refs"]["ontology"]["relationship_types"] += ["noted", "remarked"]
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


async def pin(deployment: Deployment, ref: str) -> None:
    pinned = PackPin(refs=(ref,), intents=(INTENT,), environment=deployment.config.environment)
    expected = (await deployment.catalog(TENANT).active()).version
    await pin_packs(deployment, TENANT, pinned, expected=expected, by=Person(TEST_OPERATOR).actor())


async def remember_secrets(deployment: Deployment) -> None:
    """Let a run propose to remember a fact, and promote it."""
    body = request(500, "req_before")
    (new,) = body["context_pack_refs"]
    await pin(deployment, OLD)
    view = await deployment.invoke({**body, "context_pack_refs": [OLD]})
    assert view.state == "completed", failures(view)
    (one,) = await list_candidates(deployment.ports.stores.tenant(TENANT))
    assert leaks(iter([("memory", repr(one))])), "what is remembered has the secrets"
    done = await review_memory(deployment, TENANT, one.proposal_id, "promote", by=Person(TEST_OPERATOR).actor())
    assert isinstance(done, dict), done
    await pin(deployment, new)


def remembering() -> dict[str, Any]:
    """The pack of the example in an older version, whose runs remember a remark about a customer."""
    pack: dict[str, Any] = example("pack.json")
    pack["pack_meta"]["pack_version"] = OLD.partition("@")[2]
    template = pack["decision_layer"]["task_templates"][0]
    template["memory"] = [{**template["memory"][0], "value": {"from": "evidence", "pointer": "/remark/value"}}]
    pack["intelligence_refs"]["retrieval"]["evidence"].append({"name": "remark", "seed": 0, "path": ["remarked"]})
    return with_notes(pack)


async def watch(deployment: Deployment, telemetry: Telemetry) -> None:
    deployment.ports = replace(deployment.ports, telemetry=telemetry)


@pytest.mark.parametrize("wire", WORDS)
def test_a_secret_of_facts_memory_arguments_or_results_is_in_no_body_of_a_wire_and_in_no_span(
    wire: ModelWire, tmp_path: Path, talkative: list[Any], log: io.StringIO
) -> None:
    """The key of the provider is in a header alone."""
    assert len(SHAPES) >= 20
    asked = [{"order_id": "ord_881"}, {"order_id": SAYS}, {"order_id": "ord_404"}]
    turns = [calling(at, (LOOKUP["tool"], args), text=SAYS) for at, args in enumerate(asked)]
    turns.append(calling(3, ("finish", {"outcome": "denied", "reason": SAYS[:1_900]}), text=SAYS))
    with conversation(wire, turns) as model, collecting() as collector:
        cheap = dict.fromkeys(PRICES, "0.01")
        known = profile(
            GOOD, **model.profile() | {"prices": {"currency": "USD", "as_of": "2026-11-01", "prices": cheap}}
        )
        more: dict[str, Any] = {"adapters": talkative, "facts": facts(), "egress": {TENANT: [model.host]}}
        models, pack = RealWire(wire, model.host, KEY), with_notes(session_pack())
        with deployed(tmp_path, pack, models, known, rules(GOOD), before=[remembering()], **more) as app:
            # A release that knew none of these shapes is the only way into a memory.
            with patch.object(redact, redact._perhaps_contains.__name__, lambda *_: False):
                app.call(remember_secrets, app.deployment)
            telemetry = Telemetry(otlp(collector.url))
            app.call(watch, app.deployment, telemetry)
            view = refund(app)
            assert view.state == "rejected", failures(view)
            kept = [(f"{kind} {key}", repr(body)) for kind, key, body in entries(app, view.run_id)]
            told = [("answer", repr(view)), ("errors", repr(failures(view)))]
            require_sound(app, view.run_id)
            telemetry.close()
    assert len(model.sent) == len(turns)
    assert all(KEY in one for one in model.heads)
    seen = model.text(0).replace("\\", "")
    assert '"predicate":"noted"' in seen, "the facts are shown"
    assert '"predicate":"was_refunded"' in seen, "so is the memory"
    assert "[redacted:secret]" in model.text(3)
    assert any(one.name.startswith("chat ") for one in collector.spans)
    sent = [("span", repr(one)) for one in collector.raw] + [("metrics", telemetry.prometheus_text().decode())]
    bodies = [("body", one) for one in model.sent]
    assert leaks(iter([*bodies, ("log", log.getvalue()), *told, *kept, *sent])) == []
