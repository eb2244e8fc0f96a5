"""B14: a tenant's own redaction rules, secrets in what is published, and the fields of the seeds that nobody wrote.

The attackers: a requester whose pack classifies nothing, an operator who takes a rule away while a run waits, and an
author who writes a token into a pack or a policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition, CallContext
from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE
from contextos.errors import InvalidArtifact, LostReply
from contextos.trust.seal import seal
from tests.unit.control.example import policy_json
from tests.world import TENANT, TestWorld, example, open_world, request, run

MAIL, SECRET = "ann@example.com", "ghp_" + "a1B2" * 9


def unclassified(pack: dict[str, Any]) -> None:
    pack["policy_layer"]["guardrails"]["redaction_rules"] = []


def on_world(path: Path, stores: str, act: Callable[[TestWorld], Awaitable[None]], **how: Any) -> None:
    async def go() -> None:
        world = await open_world(path, stores=stores, **how)
        try:
            await act(world)
        finally:
            await world.aclose()

    asyncio.run(go())


async def bodies(world: TestWorld, run_id: str, kind: str) -> list[Any]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    return [read_body(one) for one in entries if one.kind == kind]


def test_what_only_the_tenant_classifies_is_nowhere_on_record_and_the_manifest_names_the_rule(
    stores: str, tmp_path: Path
) -> None:
    async def act(world: TestWorld) -> None:
        body = request(900, "req_mail", note=f"write to {MAIL}")
        view = await world.invoke(body)
        assert view.state == "completed", view.record
        store = world.stores.tenant(TENANT)
        for name in ("index", "control", view.run_id):
            assert MAIL.encode() not in b"".join(one.body or b"" for one in await store.read(name))
        (compiled,) = await bodies(world, view.run_id, "context.compiled")
        (redaction,) = compiled["manifests"]["redactions"]
        assert redaction == {"place": "request:/input/context/note", "kinds": ["email"], "rules": ["email"]}
        assert compiled["runtime_controls"]["redaction_rules_active"] == ["email"]
        (pinned,) = await bodies(world, view.run_id, "run.pinned")
        assert pinned["redaction"] == ["email"]
        assert view.record is not None
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]

    on_world(tmp_path, stores, act, pack=unclassified, redaction={TENANT: ("email",)})


def test_a_rule_that_is_taken_away_while_a_run_waits_opens_nothing(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        world.deployment.config = replace(world.deployment.config, redaction={})
        world.deployment._catalogs.clear()
        await world.deployment.advance(TENANT, waiting.run_id)
        assert world.refunds() == []
        assert (await world.deployment.view(TENANT, waiting.run_id)).state == "escalated"

    on_world(tmp_path, stores, act, redaction={TENANT: ("email",)})


@pytest.mark.parametrize("what", ["pack", "policy"])
def test_no_artifact_with_a_token_in_it_is_published(what: str, stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        if what == "pack":
            body, media_type = example("pack.json"), PACK_TYPE
            body["pack_meta"]["pack_version"] = "9.9.9"
            body["decision_layer"]["task_templates"][0]["steps"][0]["params"]["order_id"] = SECRET
        else:
            body, media_type = policy_json(tenant=TENANT), POLICY_TYPE
            body["bundle"]["policy_dsl"]["rules"][0]["if"] = {"==": [{"var": "user.role"}, SECRET]}
        before = await world.stores.tenant(TENANT).read("control")
        with pytest.raises(InvalidArtifact) as refused:
            await world.publish(seal(media_type, canonical(body), world.keys, "pack"))
        assert [one.code for one in refused.value.problems] == ["secret"]
        assert SECRET not in str(refused.value)
        assert await world.stores.tenant(TENANT).read("control") == before

    on_world(tmp_path, stores, act)


def test_the_manifests_keep_the_trace_and_a_result_counts_its_retries(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        inner, sent = world.adapters["adp_orders"], list[str]()

        class Flaky:
            def describe(self) -> AdapterDefinition:
                return inner.describe()

            async def call(self, name: str, args: Any, context: CallContext) -> Any:
                sent.append(name)
                if len(sent) < 3:
                    raise LostReply("adp_orders", "the line is down")
                return await inner.call(name, args, context)

        flaky: Any = Flaky()
        world.adapters["adp_orders"] = flaky
        body = request(900, "req_trace")
        body["trace"] |= {"tracestate": "vendor=1", "baggage": "team=refunds"}
        view = await world.invoke(body)
        (compiled,) = await world.contexts(view.run_id)
        trace = body["trace"]
        assert compiled["manifests"]["trace_context"] == {
            "traceparent": f"00-{trace['trace_id']}-{trace['span_id']}-{trace.get('trace_flags', '00')}",
            "tracestate": f"tenant={TENANT},ctxpack={body['context_pack_refs'][0]},vendor=1",
            "baggage": f"session_id={body['session_id']},decision_id=support.refund.execute,run_id={view.run_id},"
            "team=refunds",
        }
        results = [one["envelope"] for one in await bodies(world, view.run_id, "tool.returned")]
        lookups = [one["metadata"].get("retries", 0) for one in results if one["capability_id"] == "adp_orders.lookup"]
        assert lookups == [0, 1, 2]

    on_world(tmp_path, stores, act)


def test_a_pack_cannot_state_what_its_runs_have_used() -> None:
    """`atomic_usage` in a pack was accepted and never read."""

    async def go() -> None:
        body = example("pack.json")
        used = {"tokens": 0, "tool_calls": 0, "latency_ms": 0, "cost_cents": 0}
        body["pack_meta"]["run_budget"]["atomic_usage"] = used
        from contextos.contracts.encoding.codec import parse
        from contextos.contracts.envelopes.pack import ContextPack
        from contextos.errors import InvalidEnvelope

        with pytest.raises(InvalidEnvelope):
            parse(ContextPack, body)

    run(go())
