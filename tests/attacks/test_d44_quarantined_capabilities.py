"""D44: a capability whose definition changed is called by no process until a person acts, whatever is done to rows.

The attackers are a server that changes a tool back, and writers of the database who hold no key.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.documents.operations import DRIFT_INCIDENTS
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import DEFINITION_DRIFT, AdapterDefinition, AdapterReply, CallContext, ToolError
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.deployment.acts.quarantines import release_capability
from contextos.deployment.queries.run_names import run_named
from contextos.deployment.queries.timeline import tell_story
from contextos.errors import ApprovalRefused, InvalidInput, LostReply, NotFound, Unavailable
from tests.attacks.attackers import Attacker
from tests.attacks.conftest import DatabaseOwner
from tests.world import APPROVER, APPROVER_KEY, TENANT, TestWorld, open_world, request, run

ORDERS, PAYMENTS = "adp_orders.lookup", "adp_payments.issue_refund"


class Foreign:
    """One of the shop's adapters as a foreign server has it, with a definition that the test changes and changes back.

    `asked` are the names of all calls that reached it.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.changed, self.loses, self.down = inner, False, False, False
        self.process: asyncio.Task[Any] | None = None
        self.asked: list[str] = []
        self.definition = AdapterDefinition.model_validate(inner.describe().to_json() | {"type": "mcp"})

    def describe(self) -> AdapterDefinition:
        return self.definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.asked.append(capability)
        if self.changed:
            return AdapterReply(error=ToolError(code=DEFINITION_DRIFT, message="not as it was published"), cost_cents=0)
        if self.down:
            raise Unavailable("shop", "it is down")
        reply: AdapterReply = await self.inner.call(capability, args, context)
        if self.process is not None:
            # It ends here, and records nothing any more.
            self.process.cancel()
            await asyncio.Event().wait()
        if self.loses:
            raise LostReply("the line was cut")
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        found: AdapterReply | None = await self.inner.lookup(capability, idempotency_key, context)
        return found


@asynccontextmanager
async def opened(path: Path, stores: str, **more: Any) -> AsyncIterator[TestWorld]:
    """The deployment of one process, whose adapters are foreign ones."""
    world = await open_world(path, stores=stores, **more)
    try:
        for name in ("adp_orders", "adp_payments"):
            foreign: Any = Foreign(world.adapters[name])
            world.adapters[name] = foreign
        yield world
    finally:
        await world.aclose()


def foreign(world: TestWorld, name: str = "adp_orders") -> Foreign:
    found: Any = world.adapters[name]
    assert isinstance(found, Foreign)
    return found


async def invoked(world: TestWorld, name: str, amount: int = 900) -> Any:
    view = await world.invoke(request(amount, name))
    if view.ended:
        again = await replay(world.deployment, TENANT, view.run_id)
        assert again.record_hash == view.record["record_hash"]
    return view


async def drift(world: TestWorld, name: str = "req_drift") -> Any:
    """A run that meets the changed definition; afterwards it is as it was published."""
    foreign(world).changed = True
    view = await invoked(world, name)
    foreign(world).changed = False
    foreign(world).asked.clear()
    return view


def codes(view: Any) -> list[str]:
    return [one["code"] for one in view.record["rationale"]["failures"]]


async def is_refused(world: TestWorld, name: str) -> None:
    """A new run is refused its call, and the server is asked nothing."""
    view = await invoked(world, name)
    assert (view.state, codes(view)) == ("escalated", ["quarantined"])
    assert (foreign(world).asked, world.refunds()) == ([], [])
    assert "capability.quarantined" in await world.kinds(view.run_id)


async def release(world: TestWorld, capability: str = ORDERS, **more: Any) -> Any:
    said: dict[str, Any] = {"reason": "the vendor put it back", "by": world.actor()}
    return await release_capability(world.deployment, TENANT, capability, **said | more)


async def rows(world: TestWorld) -> list[Any]:
    return await DRIFT_INCIDENTS.page(world.stores.tenant(TENANT))


def test_a_change_is_an_incident_that_every_later_process_reads(stores: str, tmp_path: Path) -> None:
    async def first() -> None:
        async with opened(tmp_path, stores) as world:
            view = await drift(world)
            assert world.refunds() == []
            [row] = await rows(world)
            assert row.body.run_id == view.run_id
            assert row.key.startswith(f"{ORDERS}/sha256:")
            entries = await world.stores.tenant(TENANT).read(view.run_id)
            returned = next(read_body(one) for one in entries if one.kind == "tool.returned")
            assert returned is not None
            assert returned["drifted"] is True
            assert returned["happened"] is False
            await is_refused(world, "req_same_process")

    async def later() -> None:
        async with opened(tmp_path, stores) as world:
            await is_refused(world, "req_other_process")
            view = await invoked(world, "req_story")
            told = tell_story(await world.stores.tenant(TENANT).read(view.run_id))
            assert any("is in quarantine" in one.text for moments in told.values() for one in moments)
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)

    run(first())
    run(later())


def test_an_operator_releases_it_by_a_signed_act_with_a_reason(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            with pytest.raises(NotFound, match="not in quarantine"):
                await release(world)
            await drift(world)
            with pytest.raises(InvalidInput, match="reason"):
                await release(world, reason=" ")
            with pytest.raises(ApprovalRefused):
                await release(world, by=world.actor(APPROVER, APPROVER_KEY))
            await is_refused(world, "req_before")
            assert len(await release(world)) == 1
            view = await invoked(world, "req_after")
            assert (view.state, foreign(world).asked) == ("completed", ["lookup"])
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
            foreign(world).changed = True
            await invoked(world, "req_again")
            assert len(await rows(world)) == 2, "what was released says nothing of a later change"
            foreign(world).asked.clear()
            view = await invoked(world, "req_last")
            assert (codes(view), foreign(world).asked) == (["quarantined"], [])

    run(go())


def test_another_published_version_is_another_capability(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            await drift(world)
            published = foreign(world).definition
            foreign(world).definition = AdapterDefinition.model_validate(published.to_json() | {"version": "99.0.0"})
            view = await invoked(world, "req_new")
            assert view.state == "completed", view.record["rationale"]
            foreign(world).definition = published
            foreign(world).asked.clear()
            view = await invoked(world, "req_old")
            assert codes(view) == ["quarantined"]

    run(go())


@pytest.mark.parametrize("body", [b'{"run_id":"run_1","tool_call_id":"tool_1","at_us":1}', b"no JSON at all"])
def test_a_row_that_somebody_made_up_denies_and_an_operator_releases_it(
    body: bytes, stores: str, attacker: Attacker, tmp_path: Path
) -> None:
    async def before() -> str:
        async with opened(tmp_path, stores) as world:
            await drift(world)
            [row] = await rows(world)
            await release(world)
            return str(row.key).rpartition("/")[0]

    async def after() -> None:
        async with opened(tmp_path, stores) as world:
            await is_refused(world, "req_denied")
            assert len(await release(world)) == 1
            assert (await invoked(world, "req_free")).state == "completed"

    version = run(before())
    raw = f"x'{body.hex()}'" if stores == "sqlite" else f"decode('{body.hex()}', 'hex')"
    attacker.application(
        "INSERT INTO {documents} (tenant, collection, key, version, body)"
        f" VALUES ('{TENANT}', 'drift_incidents', '{version}/\u202e<made up>', 1, {raw})"
    )
    run(after())


@pytest.mark.parametrize("column", ["body = {blob}", "version = version + 7"])
def test_a_row_that_was_edited_still_denies(column: str, stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            await drift(world)
            where = f"tenant = '{TENANT}' AND collection = 'drift_incidents'"
            blob = owner.blob(orjson.dumps({"run_id": "run_1", "tool_call_id": "t", "at_us": 1, "released": True}))
            await owner.execute(f"UPDATE {{documents}} SET {column.format(blob=blob)} WHERE {where}")
            await is_refused(world, "req_edited")

    run(go())


def test_a_row_that_was_removed_sends_nothing_to_a_tool_that_is_not_as_it_was_published(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    """The documented limit: the server is asked for its tools again, and a call needs the published definition."""

    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            await drift(world)
            where = f"tenant = '{TENANT}' AND collection = 'drift_incidents'"
            await owner.execute(f"DELETE FROM {{documents}} WHERE {where}")
            foreign(world).changed = True
            await invoked(world, "req_removed")
            assert (len(await rows(world)), world.refunds()) == (1, [])
            foreign(world).changed = False
            foreign(world).asked.clear()
            await is_refused(world, "req_found_again")

    run(go())


def test_a_release_that_nobody_signed_or_that_is_about_another_capability_ends_nothing(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            foreign(world, "adp_payments").changed = True
            await invoked(world, "req_payments")
            await drift(world)
            [orders] = [one.key for one in await rows(world) if one.key.startswith(ORDERS)]
            arguments = {"capability_id": ORDERS, "incidents": [orders], "reason": "x"}
            act = {"tenant_id": TENANT, "kind": "capability.released", "actor": "user_operator_5", "expected": 0}
            body = canonical({"act": act | {"arguments": arguments}, "role": "operator", "assertion": {}, "seal": {}})
            draft = Draft("capability.released", ORDERS, 1, "user_operator_5", body, b"s" * 16)
            await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, shared=((CONTROL, draft),)))
            await is_refused(world, "req_forged")
            await release(world, PAYMENTS)
            await owner.execute(
                f"UPDATE {{journal}} SET key = '{ORDERS}' WHERE tenant = '{TENANT}' AND run = '{CONTROL}'"
                f" AND kind = 'capability.released' AND key = '{PAYMENTS}'"
            )
            await is_refused(world, "req_moved")

    run(go())


def test_a_call_that_was_approved_is_refused_if_the_quarantine_began_meanwhile(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            waiting = await world.invoke(request(4200, "req_waiting"))
            payments = foreign(world, "adp_payments")
            payments.changed = True
            await invoked(world, "req_small")
            payments.changed = False
            payments.asked.clear()
            view = await world.approve(waiting.run_id)
            assert (view.state, codes(view), payments.asked, world.refunds()) == ("escalated", ["quarantined"], [], [])
            await replay(world.deployment, TENANT, view.run_id)

    run(go())


def test_evidence_of_a_quarantined_read_is_not_asked_for_again(stores: str, tmp_path: Path) -> None:
    """An approval is bound to evidence that is read again when it is used: not from a server that changed."""

    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            policy: Any = Foreign(world.adapters["adp_policy"])
            world.adapters["adp_policy"] = policy
            waiting = await world.invoke(request(4200, "req_waiting"))
            await world.answer(waiting.run_id)
            policy.changed = True
            await invoked(world, "req_small")
            policy.changed = False
            policy.asked.clear()
            await world.deployment.advance(TENANT, waiting.run_id)
            view = await world.deployment.view(TENANT, waiting.run_id)
            assert (codes(view), policy.asked, world.refunds()) == (["approval_void"], [], [])

    run(go())


def test_a_change_says_nothing_of_a_write_whose_reply_was_lost(stores: str, tmp_path: Path) -> None:
    """The refund was paid and the reply lost; the server changed before it is sent again under its key."""

    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            payments = foreign(world, "adp_payments")
            payments.loses = True
            view = await world.invoke(request(900, "req_lost"))
            assert len(world.refunds()) == 1
            payments.changed, payments.loses = True, False
            for _ in range(3):
                world.clock.at_us += 400_000_000
                await world.deployment.advance(TENANT, view.run_id)
            view = await world.deployment.view(TENANT, view.run_id)
            assert view.state == "waiting"
            assert view.waiting["for"] == "settlement", view.waiting
            assert len(await rows(world)) == 1
            payments.changed = False
            view = await world.settle(view.run_id, world.by_the_books())
            assert (view.state, len(world.refunds())) == ("completed", 1)
            await replay(world.deployment, TENANT, view.run_id)

    run(go())


def test_two_runs_that_find_the_change_at_the_same_time_both_end(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            foreign(world).changed = True
            views = await asyncio.gather(*(invoked(world, f"req_{number}") for number in range(4)))
            assert all(view.ended for view in views)
            assert len(await rows(world)) >= 1
            foreign(world).changed = False
            foreign(world).asked.clear()
            await is_refused(world, "req_after")

    run(go())


def test_each_read_of_a_group_that_finds_a_change_is_an_incident(stores: str, tmp_path: Path) -> None:
    """Two capabilities change at once. Releasing one of them releases nothing else."""

    def together(body: dict[str, Any]) -> None:
        steps = body["decision_layer"]["task_templates"][0]["steps"]
        second = copy.deepcopy(steps[1]) | {"id": "r0"}
        del second["depends_on"]
        steps.insert(1, second)

    async def go() -> None:
        async with opened(tmp_path, stores, pack=together) as world:
            world.adapters["adp_policy"] = Foreign(world.adapters["adp_policy"])  # type: ignore[assignment]
            changed = [foreign(world), foreign(world, "adp_policy")]
            for one in changed:
                one.changed = True
            view = await invoked(world, "req_both")
            assert [len(one.asked) for one in changed] == [1, 1], view
            assert sorted(one.key.partition("/")[0] for one in await rows(world)) == [ORDERS, "adp_policy.eval"]
            for one in changed:
                one.changed = False
                one.asked.clear()
            await release(world)
            view = await invoked(world, "req_later")
            assert (codes(view), changed[1].asked, world.refunds()) == (["quarantined"], [], [])

    run(go())


@pytest.mark.parametrize("lost", [False, True])
def test_a_write_that_waits_to_be_sent_again_is_not_sent_to_a_quarantined_tool(
    lost: bool, stores: str, tmp_path: Path
) -> None:
    """One run waits for its next attempt; another finds the change; the server changes back before the attempt."""

    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            payments = foreign(world, "adp_payments")
            payments.loses, payments.down = lost, not lost
            waiting = await world.invoke(request(900, "req_waiting"))
            assert not waiting.ended
            payments.loses = payments.down = False
            payments.changed = True
            await invoked(world, "req_finds", 901)
            payments.changed = False
            payments.asked.clear()
            world.clock.at_us += 400_000_000
            await world.deployment.advance(TENANT, waiting.run_id)
            view = await world.deployment.view(TENANT, waiting.run_id)
            assert (payments.asked, len(world.refunds())) == ([], int(lost))
            if lost:
                assert view.waiting["for"] == "settlement"
                view = await world.settle(view.run_id, world.by_the_books())
                assert (view.state, len(world.refunds())) == ("completed", 1)
            else:
                assert (view.state, codes(view)) == ("escalated", ["quarantined"])
            await replay(world.deployment, TENANT, view.run_id)

    run(go())


def test_a_write_that_is_taken_over_is_not_sent_again_to_a_quarantined_tool(stores: str, tmp_path: Path) -> None:
    """A process ends in the middle of a refund; another run finds the change; a third process takes the refund over."""

    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            payments = foreign(world, "adp_payments")
            payments.process = asyncio.create_task(world.invoke(request(900, "req_dies")))
            await asyncio.wait({payments.process})
            [lost] = world.refunds()
            assert lost["amount_inr"] == 900
            payments.process, payments.changed = None, True
            await invoked(world, "req_finds", 901)
            payments.changed = False
            payments.asked.clear()
            run_id = await run_named(world.stores.tenant(TENANT), "req_dies")
            for _ in range(3):
                world.clock.at_us += 400_000_000
                await world.deployment.advance(TENANT, run_id)
            view = await world.deployment.view(TENANT, run_id)
            assert (payments.asked, view.waiting and view.waiting["for"]) == ([], "settlement"), view
            view = await world.settle(run_id, world.by_the_books())
            assert (view.state, len(world.refunds())) == ("completed", 1)
            await replay(world.deployment, TENANT, run_id)

    run(go())


def test_a_read_is_not_sent_again_to_a_tool_whose_quarantine_began_between_two_attempts(
    stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            orders, found = foreign(world), []

            async def fails(capability: str, *_: Any) -> AdapterReply:
                orders.asked.append(capability)
                orders.call = original  # type: ignore[method-assign]
                await drift(world, "req_finds")
                found.append(True)
                raise Unavailable("shop", "it is down")

            original, orders.call = orders.call, fails  # type: ignore[method-assign]
            view = await invoked(world, "req_reads")
            assert found
            assert (codes(view), orders.asked, world.refunds()) == (["quarantined"], [], [])

    run(go())


def test_a_write_that_waited_for_another_run_is_not_sent_to_a_quarantined_tool(stores: str, tmp_path: Path) -> None:
    """The first run has the key and never gets through. Meanwhile a third finds the change."""

    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            payments = foreign(world, "adp_payments")
            payments.down = True
            first = await world.invoke(request(900, "req_first"))
            second = await world.invoke(request(900, "req_second"))
            assert not first.ended
            assert not second.ended
            payments.down, payments.changed = False, True
            await invoked(world, "req_finds", 901)
            payments.changed = False
            payments.asked.clear()
            world.clock.at_us += 400_000_000
            await world.deployment.advance(TENANT, first.run_id)
            await world.deployment.advance(TENANT, second.run_id)
            view = await world.deployment.view(TENANT, second.run_id)
            assert (view.state, codes(view)) == ("escalated", ["quarantined"])
            assert (payments.asked, world.refunds()) == ([], [])
            await replay(world.deployment, TENANT, view.run_id)

    run(go())


def test_a_change_that_is_found_while_evidence_is_read_again_is_an_incident(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path, stores) as world:
            waiting = await world.invoke(request(4200, "req_waiting"))
            await world.answer(waiting.run_id)
            foreign(world).changed = True
            await world.deployment.advance(TENANT, waiting.run_id)
            view = await world.deployment.view(TENANT, waiting.run_id)
            assert (codes(view), len(await rows(world))) == (["approval_void"], 1)
            foreign(world).changed = False
            foreign(world).asked.clear()
            await is_refused(world, "req_later")
            await replay(world.deployment, TENANT, view.run_id)

    run(go())
