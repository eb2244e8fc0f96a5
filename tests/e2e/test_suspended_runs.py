"""A run that waits for a person keeps its loop. That saves work and decides nothing: in any doubt it is derived."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.tool_gateway import Gateway
from contextos.audit.replay import replay
from contextos.contracts import bindings
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.journal import Batch, Draft, Parked, link
from contextos.contracts.ports.calls import ToolCall
from contextos.deployment import driver
from contextos.deployment.preview import void_question
from contextos.deployment.suspended_runs import MAX_SUSPENDED, MAX_SUSPENDED_BYTES, SuspendedRuns
from contextos.errors import ChainBroken, Unavailable
from contextos.runtime import state_machine
from contextos.runtime.admission import request_fingerprint
from contextos.runtime.loop import invoke_agent
from contextos.runtime.state_machine import transition
from contextos.trust.journal.chain import append, verify_chain
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.live_driver import LiveDriver
from contextos_sim.memory.stores import MemoryStore
from tests.world import TENANT, TestWorld, open_world, request, run


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The run of every loop that was begun; a resumed loop is not in it a second time."""
    begun: list[str] = []
    loop = driver.invoke_agent

    def counted(given: Any, fields: Any, mark: str, world: Any, correction: Any) -> Any:
        begun.append(world.journal.run_id)
        return loop(given, fields, mark, world, correction)

    monkeypatch.setattr(driver, "invoke_agent", counted)
    return begun


def forget(world: TestWorld) -> None:
    """What a restart does to the loops that are kept."""
    world.deployment._driver._suspended_runs = SuspendedRuns()


@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_a_kept_loop_and_a_derived_one_leave_the_same_journal(tmp_path: Path, derived: list[str], stores: str) -> None:
    world = run(open_world(tmp_path, stores=stores))
    kinds = []
    for number, keep in enumerate((True, False)):
        view = run(world.invoke(request(4200 + number, f"req_rest_{number}")))
        assert view.state == "waiting"
        if not keep:
            forget(world)
        # On an event loop of its own, as an operator's thread would drive it.
        view = run(world.approve(view.run_id))
        assert view.state == "completed"
        assert derived.count(view.run_id) == (1 if keep else 2)
        kinds.append(run(world.kinds(view.run_id)))
        derived_again = run(replay(world.deployment, TENANT, view.run_id))
        assert derived_again.record_hash == view.record["record_hash"]
    assert kinds[0] == kinds[1]
    assert "run.resumed" in kinds[0]
    assert [one["amount_inr"] for one in world.refunds()] == [4200, 4201]
    world.close()


def test_a_change_in_the_store_while_a_run_is_suspended_is_found_and_nothing_moves(
    tmp_path: Path, derived: list[str]
) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_tampered")))
    run(world.answer(view.run_id))
    store = world.stores.tenant(TENANT)
    assert isinstance(store, MemoryStore)
    stream = store._stored.streams[view.run_id]
    place = next(at for at, entry in enumerate(stream) if entry.kind == "approval.asked")
    stream[place] = stream[place]._replace(body=(stream[place].body or b"").replace(b"4200", b"2400"))
    with pytest.raises(ChainBroken):
        run(world.deployment.advance(TENANT, view.run_id))
    assert world.refunds() == []


@pytest.mark.requirement("J-HEAD-FIRST")
def test_a_removed_head_is_missed_although_the_loop_was_kept(tmp_path: Path, derived: list[str]) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_beheaded")))
    run(world.answer(view.run_id))
    world.stores.tenant(TENANT)._stored.signed[view.run_id].clear()
    with pytest.raises(ChainBroken, match="no signed head"):
        run(world.deployment.advance(TENANT, view.run_id))
    assert world.refunds() == []


@pytest.mark.requirement("J-HEAD-FIRST")
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", ["evidence.rechecked", "tool.returned", "run.resumed"])
def test_forged_entries_of_the_loop_are_covered_by_no_head_and_stop_the_run(
    tmp_path: Path, kept: bool, kind: str
) -> None:
    """A process with store access can continue a chain so that it fits; only the runtime's key signs a head over it."""
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_words")))
    run(world.answer(view.run_id))
    store = world.stores.tenant(TENANT)
    entries = list(run(store.read(view.run_id)))
    forged = append(entries, kind, "x", by="runtime", answer={"outcome": "returned"}, at_us=0, salt=bytes(16))
    run(store.commit(Batch(run=view.run_id, entries=(forged,))))
    verify_chain(TENANT, view.run_id, [*entries, forged])
    if not kept:
        forget(world)
    with pytest.raises(ChainBroken, match="no signed head") as broken:
        run(world.deployment.advance(TENANT, view.run_id))
    assert broken.value.seq == forged.seq
    assert world.refunds() == []


def test_a_deployment_that_is_another_now_derives_the_run_again(tmp_path: Path, derived: list[str]) -> None:
    world = run(open_world(tmp_path, unsafe=("unsafe_local_approvals",)))
    view = run(world.invoke(request(4200, "req_moved")))
    world.deployment.config = replace(world.deployment.config, unsafe=())
    view = run(world.approve(view.run_id))
    assert view.state == "completed"
    assert derived == [view.run_id] * 2


def test_a_deadline_that_passes_while_a_run_is_suspended_ends_it_from_there(tmp_path: Path, derived: list[str]) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_late")))
    run(world.deployment.advance(TENANT, view.run_id))  # too early: the run is suspended again
    world.clock.at_us = view.waiting["deadline_us"] + 1_000_000
    run(world.deployment.advance(TENANT, view.run_id))
    view = run(world.deployment.view(TENANT, view.run_id))
    assert (view.state, derived) == ("escalated", [view.run_id])
    assert run(replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
    assert world.refunds() == []


def test_a_loop_that_failed_after_it_was_resumed_is_derived_again_and_pays_once(
    tmp_path: Path, derived: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_failing")))
    run(world.answer(view.run_id))
    commit, left = MemoryStore.commit, [1]

    async def failing(self: MemoryStore, batch: Batch) -> None:
        if batch.run == view.run_id and left and left.pop():
            raise Unavailable("store", "the disk is full")
        await commit(self, batch)

    monkeypatch.setattr(MemoryStore, "commit", failing)
    with pytest.raises(Unavailable):
        run(world.deployment.advance(TENANT, view.run_id))
    run(world.deployment.advance(TENANT, view.run_id))
    assert derived == [view.run_id] * 2
    assert [one["amount_inr"] for one in world.refunds()] == [4200]


def with_payee(body: dict[str, Any]) -> None:
    """Both the read and the payment get the same object of the request."""
    for step in body["decision_layer"]["task_templates"][0]["steps"]:
        if step["tool"] in ("adp_orders.lookup", "adp_payments.issue_refund"):
            step["params"]["payee"] = {"from": "request", "pointer": "/input/context/payee"}


@dataclass
class Taking:
    """An adapter whose capability also takes a `payee`; it keeps the very object that it was given."""

    inner: Any
    given: list[Any] = field(default_factory=list)

    def describe(self) -> AdapterDefinition:
        definition = self.inner.describe().to_json()
        definition["capabilities"][0]["input_schema"]["properties"]["payee"] = {"type": "object"}
        if not hasattr(self, "made"):
            self.made = AdapterDefinition.model_validate(definition)
        return self.made

    async def call(self, capability: str, args: Any, context: CallContext) -> AdapterReply:
        self.given.append(args["payee"])
        return await self.inner.call(capability, {k: v for k, v in args.items() if k != "payee"}, context)


def test_a_change_that_an_adapter_makes_to_its_arguments_reaches_nobody_else(
    tmp_path: Path, derived: list[str]
) -> None:
    world = run(open_world(tmp_path, pack=with_payee))
    reads, pays = Taking(world.adapters["adp_orders"]), Taking(world.adapters["adp_payments"])
    world.adapters |= {"adp_orders": reads, "adp_payments": pays}  # type: ignore[dict-item]
    view = run(world.invoke(request(4200, "req_shared", payee={"iban": "DE1"})))
    assert view.waiting["shown"]["args"]["payee"] == {"iban": "DE1"}
    reads.given[0]["iban"] = "XX9"
    view = run(world.approve(view.run_id))
    assert (view.state, pays.given, derived) == ("completed", [{"iban": "DE1"}], [view.run_id])
    assert run(replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]


def test_arguments_that_are_not_those_that_were_shown_void_the_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line: as if the copies of the first one were missing, and an adapter got the runtime's own object."""
    monkeypatch.setattr(bindings, "with_defaults", lambda _schema, args, *_: args)
    called, call = list[ToolCall](), Gateway.call

    async def watched(gateway: Gateway, made: ToolCall, *more: Any) -> Any:
        called.append(made)
        return await call(gateway, made, *more)

    monkeypatch.setattr(Gateway, "call", watched)
    world = run(open_world(tmp_path, pack=with_payee))
    reads, pays = Taking(world.adapters["adp_orders"]), Taking(world.adapters["adp_payments"])
    world.adapters |= {"adp_orders": reads, "adp_payments": pays}  # type: ignore[dict-item]
    view = run(world.invoke(request(4200, "req_shared", payee={"iban": "DE1"})))
    next(made.args["payee"] for made in called if "payee" in made.args)["iban"] = "XX9"
    view = run(world.approve(view.run_id))
    failure = view.record["rationale"]["failures"][0]
    assert (failure["code"], pays.given, world.refunds()) == ("approval_void", [], [])
    assert "differ from those that the approver saw" in failure["detail"]


def test_a_change_that_a_caller_makes_to_a_view_reaches_no_other_caller(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    body = request(4200, "req_view")
    view = run(world.invoke(body))
    view.record["status"] = "DECIDED"
    view.waiting["shown"]["args"]["amount_inr"] = 1
    again = run(world.invoke(body))
    assert (again.record["status"], again.waiting["shown"]["args"]["amount_inr"]) == ("DEFERRED", 4200)


def test_a_driver_that_keeps_no_loops_gets_parked_for_a_run_that_waits(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    ports, app = world.deployment.ports, world.deployment
    live = LiveDriver(ports.stores.tenant(TENANT), ports.clock, ports.entropy, ports.keys, "me", 1_000_000)
    journal = RunJournal(TENANT, "run_00000000000000aa", (), transition, state_machine.START, live)
    asked = parse(InvokeRequest, canonical(request(4200, "req_own")))
    fields = asked.to_json()
    with pytest.raises(Parked) as parked:
        run(invoke_agent(asked, fields, request_fingerprint(fields), app.environment(TENANT, journal)))
    assert parked.value.wake_at_us > ports.clock.now_us()


@pytest.mark.parametrize("body", [b"junk", b"", b"5", b"[" * 2000, b'{"answer":{}}', b'{"request_digest":"x"}'])
@pytest.mark.parametrize("keep", [True, False])
def test_an_answer_that_is_none_voids_the_question_and_moves_nothing(tmp_path: Path, body: bytes, keep: bool) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_junk")))
    if not keep:
        forget(world)
    store = world.stores.tenant(TENANT)
    entries = run(store.read(view.run_id))
    key = next(entry.key for entry in entries if entry.kind == "approval.asked")
    last = entries[-1]
    draft = Draft("approval.answered", key, last.at_us, "somebody", body, bytes(16))
    run(store.commit(Batch(view.run_id, (link(TENANT, view.run_id, last.seq + 1, last.hash, draft),))))
    for _ in range(2):
        run(world.deployment.advance(TENANT, view.run_id))
    assert run(world.deployment.view(TENANT, view.run_id)).state == "escalated"
    assert world.refunds() == []


def at_rest(size: int) -> Any:
    return SimpleNamespace(journal=SimpleNamespace(stored_bytes=lambda: size))


@pytest.mark.parametrize(
    ("size", "most"), [(0, MAX_SUSPENDED), (MAX_SUSPENDED_BYTES // 4, 4), (MAX_SUSPENDED_BYTES + 1, 0)]
)
def test_no_more_loops_are_kept_than_their_number_and_size_allow(size: int, most: int) -> None:
    loops, resting, count = SuspendedRuns(), at_rest(size), most + 5
    for number in range(count):
        loops.keep((TENANT, f"run_{number}"), resting)
    kept = [number for number in range(count) if loops.take((TENANT, f"run_{number}")) is resting]
    assert kept == list(range(count - most, count))


def test_a_look_at_an_open_question_gives_up_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds none: a turn that it took back in the name of the run would be nobody's, and never given back."""
    world = run(open_world(tmp_path))
    given_up: list[str] = []
    leave = type(world.deployment.ports.admission).yield_turn

    def counted(admission: Any, tenant_id: str, run_id: str) -> Any:
        given_up.append(run_id)
        return leave(admission, tenant_id, run_id)

    view = run(world.invoke(request(4200, "req_look")))
    entries = run(world.stores.tenant(TENANT).read(view.run_id))
    monkeypatch.setattr(type(world.deployment.ports.admission), "yield_turn", counted)
    for look in (lambda: None, lambda: forget(world)):
        look()
        assert run(void_question(world.deployment, TENANT, entries)) is None
    assert given_up == []
