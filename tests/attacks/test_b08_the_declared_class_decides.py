"""H2, B8: what a call may do follows from the declared class of its capability, not from the mode that a rule sets.

The attacks: a pack lowers a destructive capability to `read_only` and lets an agent act for a user who delegates
nothing; an adapter that leaves the machine is called because its mode was lowered, or because no list was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from tests.world import TENANT, TestWorld, open_world, request, run

Body = dict[str, Any]
HOST, OTHER = "payments.example:443", "elsewhere.example:443"


class Outward:
    """An adapter whose calls leave the machine, as it declares; keeps the context of every call."""

    def __init__(self, inner: Any, **changes: Any) -> None:
        self.inner, self.changes = inner, {"external": True, **changes}
        self.contexts: list[CallContext] = []

    def describe(self) -> AdapterDefinition:
        body = self.inner.describe().to_json() | self.changes
        return AdapterDefinition.model_validate(body)

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.contexts.append(context)
        reply: AdapterReply = await self.inner.call(capability, args, context)
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        found: AdapterReply | None = await self.inner.lookup(capability, idempotency_key, context)
        return found


def outward(world: TestWorld, adapter_id: str = "adp_payments", **changes: Any) -> Outward:
    found = Outward(world.adapters[adapter_id], **changes)
    world.adapters[adapter_id] = found  # type: ignore[assignment]
    return found


def lowered(body: Body) -> None:
    """Small refunds are `read_only`, says the pack."""
    rules = body["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
    rules[6]["then"]["approval_mode"] = "read_only"


def allowing(*hosts: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        lowered(body)
        body["tooling_layer"]["egress"] = list(hosts)

    return change


def first_failure(view: Any) -> Body:
    assert view.record is not None
    found: Body = view.record["rationale"]["failures"][0]
    return found


def test_a_lowered_mode_needs_the_delegation_all_the_same(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=lowered)
        # The user keeps the scopes of a service account, and delegates nothing.
        world.edit_directory(lambda tenant: tenant["users"][0].update(delegation_live=False))
        world.edit_directory(lambda tenant: tenant["users"][0].update(scopes=[]))
        body = request(2500, "req_lowered")
        del body["user"]["delegation"]
        for adapter_id in world.adapters:
            adapter = world.adapters[adapter_id]
            capabilities = [{**one, "required_scopes": []} for one in adapter.describe().to_json()["capabilities"]]
            outward(world, adapter_id, external=False, capabilities=capabilities)
        view = await world.invoke(body)
        assert (first_failure(view)["code"], world.refunds()) == ("tool_not_in_manifest", [])
        await world.aclose()

    run(go())


@pytest.mark.requirement("A-MODE-NETWORK")
@pytest.mark.parametrize(
    ("declares", "pack", "tenant", "named"),
    [
        ([], [HOST], [HOST], "declares no endpoint"),
        ([HOST], [], [HOST], HOST),
        ([HOST], [OTHER], [HOST], HOST),
        ([HOST, OTHER], [HOST], [HOST, OTHER], OTHER),
        ([HOST], [HOST], [], HOST),
        ([HOST], [HOST], [OTHER], HOST),
        ([HOST, OTHER], [HOST, OTHER], [HOST], OTHER),
    ],
)
def test_an_endpoint_outside_of_any_of_the_three_lists_is_never_reached(
    declares: list[str], pack: list[str], tenant: list[str], named: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=allowing(*pack), egress={TENANT: tuple(tenant)})
        outside = outward(world, egress=declares)
        view = await world.invoke(request(2500, "req_egress"))
        failure = first_failure(view)
        assert (view.state in ("rejected", "refused"), outside.contexts, world.refunds()) == (True, [], [])
        assert named in failure["detail"], failure
        await world.aclose()

    run(go())


def test_within_all_three_lists_the_call_is_made_and_the_adapter_gets_the_list(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(
            tmp_path, stores=stores, pack=allowing(HOST, OTHER), egress={TENANT: (HOST, "third.example")}
        )
        outside = outward(world, egress=[HOST])
        view = await world.invoke(request(2500, "req_listed"))
        assert (view.state, len(world.refunds())) == ("completed", 1), view.record
        assert [context.egress for context in outside.contexts] == [(HOST,)]
        await world.aclose()

    run(go())


def test_a_read_that_leaves_needs_the_list_as_well(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        outside = outward(world, "adp_orders")
        view = await world.invoke(request(2500, "req_read"))
        assert (first_failure(view)["code"], outside.contexts) == ("unknown_ref", [])
        world.close()

    run(go())


def test_a_list_that_the_tenant_shortens_while_a_person_is_asked_voids_the_answer(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        lists = {TENANT: (HOST,)}
        world = await open_world(tmp_path, stores=stores, pack=allowing(HOST), egress=lists)
        outside = outward(world, egress=[HOST])
        view = await world.invoke(request(4200, "req_shortened"))
        assert view.state == "waiting"
        await world.answer(view.run_id)
        again = await open_world(tmp_path, stores=stores, egress={TENANT: (OTHER,)}, clock=world.clock)
        later = outward(again, egress=[HOST])
        await again.deployment.advance(TENANT, view.run_id)
        done = await again.deployment.view(TENANT, view.run_id)
        assert (outside.contexts, later.contexts, again.refunds()) == ([], [], []), done.record
        assert done.state in ("waiting", "escalated", "rejected", "refused")
        await again.aclose()
        await world.aclose()

    run(go())
