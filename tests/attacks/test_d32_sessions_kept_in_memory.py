"""Attacks on a session that goes on from memory: another process, an operator or a writer of the store changed it
meanwhile, or the call was given up in the middle.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.directory import FileDirectory
from contextos.adapters.function.adapter import FunctionAdapter
from contextos.contracts.documents.runs import LEASES
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import CallContext
from contextos.contracts.ports.gates import Done, Refused
from contextos.deployment.gate.gate import Gate
from contextos.deployment.operator import erase_entry, request_cancel
from contextos.errors import ConflictingRequest, Integrity
from tests.sessions import (
    EVAL,
    LOOKUP,
    REFUND,
    assert_replays,
    chosen_by_agent,
    read_first,
    refund_args,
    refund_session,
)
from tests.world import TENANT, TestWorld, open_world, run

AMOUNT = 900
ORDER = {"order_id": "ord_881"}
HOUR_US = 3_600_000_000
HOST = "orders.example"
Meanwhile = Callable[[], Awaitable[None]]


@dataclass
class Calls:
    """What the adapters of a process were called for; `meanwhile` happens once, in the next call."""

    made: list[str] = field(default_factory=list)
    meanwhile: Meanwhile | None = None

    def watch(self, world: TestWorld) -> None:
        for adapter_id, inner in list(world.adapters.items()):
            definition = inner.describe()
            functions = {one.name: self._function(inner, one.name) for one in definition.capabilities}
            world.adapters[adapter_id] = FunctionAdapter(definition, functions)

    def _function(self, inner: Any, name: str) -> Callable[..., Any]:
        async def call(args: Mapping[str, Any], context: CallContext) -> Any:
            self.made.append(name)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile:
                await meanwhile()
            return await inner.call(name, args, context)

        return call


@dataclass
class Process:
    """One of two processes that have the session open."""

    world: TestWorld
    gate: Gate
    calls: Calls


Play = Callable[[Process, Process], Awaitable[None]]


def roomy(pack: dict[str, Any]) -> None:
    chosen_by_agent(pack)
    pack["pack_meta"]["run_budget"] |= {"max_tool_calls": 50}


async def opened(path: Path, stores: str, clock: Any = None) -> Process:
    world, calls = await open_world(path, stores=stores, pack=roomy, clock=clock), Calls()
    calls.watch(world)
    return Process(world, await refund_session(world, "ses_shared", AMOUNT), calls)


def between(path: Path, stores: str, play: Play) -> None:
    """Let two processes that have one session open play."""

    async def inside() -> None:
        ours = await opened(path, stores)
        theirs = await opened(path, stores, ours.world.clock)
        try:
            await play(ours, theirs)
        finally:
            await theirs.world.aclose()
            await ours.world.aclose()

    run(inside())


async def asked(one: Process) -> list[str]:
    entries = await one.world.stores.tenant(TENANT).read(one.gate.run_id)
    return [entry.key for entry in entries if entry.kind == "call.asked"]


async def finish(one: Process, outcome: Any) -> None:
    await one.gate.finish(outcome)
    await assert_replays(one.world, one.gate.run_id)


def test_processes_that_take_turns_see_each_others_evidence_and_pay_once(tmp_path: Path, stores: str) -> None:
    async def play(ours: Process, theirs: Process) -> None:
        assert isinstance(await ours.gate.call(LOOKUP, ORDER, call_id="look"), Done)
        checked = await theirs.gate.call(EVAL, {**ORDER, "amount_inr": AMOUNT}, call_id="check")
        assert isinstance(checked, Done)
        paid = await ours.gate.call(REFUND, refund_args(AMOUNT), call_id="pay")
        assert isinstance(paid, Done), "the evidence that the other process read counts"
        again = await theirs.gate.call(REFUND, refund_args(AMOUNT), call_id="pay again")
        assert isinstance(again, Done)
        assert (again.replayed, again.output) == (True, paid.output)
        assert await ours.gate.call(REFUND, refund_args(AMOUNT), call_id="pay again") == again
        assert len(ours.world.refunds()) == 1
        await finish(theirs, "approved")

    between(tmp_path, stores, play)


def test_processes_that_speak_at_the_same_moment_record_each_call_once(tmp_path: Path, stores: str) -> None:
    async def play(ours: Process, theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        await theirs.gate.call(LOOKUP, ORDER, call_id="warm")
        await ours.gate.call(LOOKUP, ORDER, call_id="warm too")
        names = [f"c{number}" for number in range(6)]
        answers = await asyncio.gather(
            *(gate.call(LOOKUP, ORDER, call_id=name) for name in names for gate in (ours.gate, theirs.gate))
        )
        assert all(isinstance(answer, Done) for answer in answers)
        assert answers[::2] == answers[1::2], "both processes got the recorded answer"
        both = [gate.call(REFUND, refund_args(AMOUNT), call_id="pay") for gate in (ours.gate, theirs.gate)]
        one, two = await asyncio.gather(*both)
        assert one == two
        assert sorted((await asked(ours))[-7:]) == sorted([*names, "pay"])
        assert len(ours.world.refunds()) == 1
        await finish(theirs, "approved")

    between(tmp_path, stores, play)


def test_a_cancel_by_another_process_stops_the_next_call(tmp_path: Path, stores: str) -> None:
    async def play(ours: Process, theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        ours.calls.made.clear()
        by, reason = theirs.world.actor(), "the customer called"
        await request_cancel(theirs.world.deployment, TENANT, ours.gate.run_id, by=by, reason=reason)
        answer = await ours.gate.call(LOOKUP, ORDER, call_id="late")
        assert isinstance(answer, Refused)
        assert answer.ended
        assert (ours.calls.made, ours.world.refunds()) == ([], [])
        await assert_replays(theirs.world, ours.gate.run_id)

    between(tmp_path, stores, play)


@pytest.mark.parametrize("during_a_call", [False, True], ids=["between two calls", "during a call"])
def test_what_was_erased_is_not_used_from_memory(tmp_path: Path, during_a_call: bool) -> None:
    async def play(ours: Process, theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        seq = (await theirs.world.kinds(ours.gate.run_id)).index("tool.returned") + 1

        async def erase() -> None:
            by, reason = theirs.world.actor(), "a customer asked"
            await erase_entry(theirs.world.deployment, TENANT, ours.gate.run_id, seq, by=by, reason=reason)

        if during_a_call:
            ours.calls.meanwhile = erase
            assert isinstance(await ours.gate.call(LOOKUP, ORDER, call_id="meanwhile"), Done)
        else:
            await erase()
        ours.calls.made.clear()
        for gate in (ours.gate, theirs.gate):
            with pytest.raises(Integrity, match="erased"):
                await gate.call(REFUND, refund_args(AMOUNT), call_id="pay")
        assert (ours.calls.made, ours.world.refunds()) == ([], [])

    between(tmp_path, "sqlite", play)


def test_a_directory_that_took_the_place_of_another_counts_for_the_next_call(tmp_path: Path, stores: str) -> None:
    async def play(ours: Process, _theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        body = json.loads((tmp_path / "directory.json").read_text("utf-8"))
        body[TENANT]["users"] = []
        (tmp_path / "without.json").write_text(json.dumps(body), "utf-8")
        ports = ours.world.deployment.ports
        ours.world.deployment.ports = replace(ports, directory=FileDirectory(tmp_path / "without.json"))
        ours.calls.made.clear()
        answer = await ours.gate.call(LOOKUP, ORDER, call_id="late")
        assert isinstance(answer, Refused)
        assert [reason.code for reason in answer.reasons] == ["identity_refused"]
        assert ours.calls.made == []

    between(tmp_path, stores, play)


def test_a_clock_that_was_put_back_between_two_calls_is_on_record(tmp_path: Path, stores: str) -> None:
    async def play(ours: Process, _theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        before = (await ours.world.stores.tenant(TENANT).read(ours.gate.run_id))[-1]
        ours.world.clock.at_us -= HOUR_US
        assert isinstance(await ours.gate.call(LOOKUP, ORDER, call_id="late"), Done)
        after = await ours.world.stores.tenant(TENANT).read(ours.gate.run_id, after=before.seq)
        assert after[0].kind == "run.resumed"
        assert read_body(after[0])["behind_us"] > HOUR_US / 2
        assert all(one.at_us >= before.at_us for one in after)
        await finish(ours, "escalated")

    between(tmp_path, stores, play)


def test_a_process_that_read_the_session_again_takes_its_lease_before_it_calls_anything(tmp_path: Path) -> None:
    """If the call ends this process, the next one can tell; two slow readers do not throw each other out for ever."""

    async def play(ours: Process, theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        held: list[bool] = []

        async def look() -> None:
            lease = await LEASES.one(theirs.world.stores.tenant(TENANT), ours.gate.run_id)
            assert lease
            held.append(lease.body.until_us > 0)

        by, reason = theirs.world.actor(), "another customer asked"
        other = await refund_session(theirs.world, "ses_other", AMOUNT)
        await erase_entry(theirs.world.deployment, TENANT, other.run_id, 1, by=by, reason=reason)
        ours.calls.meanwhile = look
        assert isinstance(await ours.gate.call(LOOKUP, ORDER, call_id="late"), Done)
        assert held == [True]

    between(tmp_path, "sqlite", play)


def test_an_older_copy_of_the_store_makes_no_process_pay_again(tmp_path: Path) -> None:
    async def play(ours: Process, _theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        where, copy = tmp_path / "contextos.db", tmp_path / "older.db"
        with closing(sqlite3.connect(where)) as now, closing(sqlite3.connect(copy)) as older:
            now.backup(older)
        assert isinstance(await ours.gate.call(REFUND, refund_args(AMOUNT), call_id="pay"), Done)
        assert isinstance(await ours.gate.call(LOOKUP, ORDER, call_id="warm"), Done)
        with closing(sqlite3.connect(where)) as now, closing(sqlite3.connect(copy)) as older:
            older.backup(now)
        # The key of the operation is that of the first payment, so the shop answers it and moves nothing.
        again = await ours.gate.call(REFUND, refund_args(AMOUNT), call_id="pay again")
        assert isinstance(again, Done)
        assert len(ours.world.refunds()) == 1

    between(tmp_path, "sqlite", play)


def test_an_answer_that_an_older_copy_of_the_store_took_away_is_not_told_from_memory(tmp_path: Path) -> None:
    """The lease has the version again that this process left. Nothing is appended for a call that is on record."""

    async def play(ours: Process, theirs: Process) -> None:
        await ours.gate.call(LOOKUP, ORDER, call_id="c1")
        where, copy = tmp_path / "contextos.db", tmp_path / "older.db"
        with closing(sqlite3.connect(where)) as now, closing(sqlite3.connect(copy)) as older:
            now.backup(older)
        await ours.gate.call(LOOKUP, ORDER, call_id="c2")
        with closing(sqlite3.connect(where)) as now, closing(sqlite3.connect(copy)) as older:
            older.backup(now)
        await theirs.gate.call(LOOKUP, ORDER, call_id="d1")
        assert isinstance(await ours.gate.call(LOOKUP, ORDER, call_id="c2"), Done)
        assert (await asked(theirs)) == ["c1", "d1", "c2"], "what the agent is told is on record"

    between(tmp_path, "sqlite", play)


def test_a_call_that_is_given_up_in_a_read_is_on_record_and_can_be_made_again(tmp_path: Path, stores: str) -> None:
    async def play(ours: Process, theirs: Process) -> None:
        await read_first(ours.gate, AMOUNT)
        entered = asyncio.Event()

        async def hang() -> None:
            entered.set()
            await asyncio.Event().wait()

        ours.calls.made.clear()
        ours.calls.meanwhile = hang
        given_up = asyncio.create_task(ours.gate.call(LOOKUP, ORDER, call_id="slow"))
        await entered.wait()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert (await asked(ours))[-1] == "slow", "a read that was sent left its trace"
        with pytest.raises(ConflictingRequest):
            await ours.gate.call(LOOKUP, {"order_id": "ord_882"}, call_id="slow")
        again = await ours.gate.call(LOOKUP, ORDER, call_id="slow")
        assert isinstance(again, Done)
        assert await theirs.gate.call(LOOKUP, ORDER, call_id="slow") == again
        assert ours.calls.made == ["lookup", "lookup"]
        assert (await asked(ours)).count("slow") == 1
        await finish(theirs, "escalated")

    between(tmp_path, stores, play)


def test_two_processes_leave_the_journal_that_one_would(tmp_path: Path) -> None:
    """What an agent says and is answered does not depend on the process that drives the session."""

    def made(path: Path, *, by_turns: bool) -> list[tuple[str, str, str]]:
        path.mkdir()
        found: list[tuple[str, str, str]] = []

        async def play(ours: Process, theirs: Process) -> None:
            for number in range(6):
                gate = theirs.gate if by_turns and number % 2 else ours.gate
                assert isinstance(await gate.call(LOOKUP, ORDER, call_id=f"c{number}"), Done)
            entries = await ours.world.stores.tenant(TENANT).read(ours.gate.run_id)
            said = [one for one in entries if one.kind in ("call.asked", "call.answered", "plan.verified")]
            found.extend((one.kind, one.key, content_address(one.body.decode())) for one in said if one.body)

        between(path, "sqlite", play)
        return found

    alone, by_turns = made(tmp_path / "alone", by_turns=False), made(tmp_path / "turns", by_turns=True)
    assert len(alone) == 18
    assert alone == by_turns


@pytest.mark.parametrize("declared", ["external", "egress", "network"])
def test_a_read_that_leaves_the_machine_is_on_record_before_it_is_sent(tmp_path: Path, declared: str) -> None:
    """Its dispatch, not only that the agent asked for it; however the adapter says that it leaves."""
    seen: list[str] = []
    args = {**ORDER, "amount_inr": AMOUNT}

    def reaching(pack: dict[str, Any]) -> None:
        roomy(pack)
        pack["tooling_layer"]["egress"] = [HOST]
        if declared == "network":
            # The decision governs such a read, so it cannot provide the evidence itself.
            pack["decision_layer"]["decision_specs"][0]["required_evidence"] = ["order_lookup"]
            pack["decision_layer"]["task_templates"][0]["steps"][1]["approval_mode"] = "network"

    async def inside() -> None:
        world = await open_world(tmp_path, stores="sqlite", pack=reaching, egress={TENANT: (HOST,)})
        inner = world.adapters["adp_policy"]
        told = inner.describe()

        async def call(args: Mapping[str, Any], context: CallContext) -> Any:
            seen.append((await world.kinds(context.run_id))[-1])
            return await inner.call("eval", args, context)

        (one,) = told.capabilities
        changes: dict[str, Any] = {"external": declared == "external", "egress": (HOST,)}
        if declared == "network":
            changes["capabilities"] = (one.model_copy(update={"approval_mode": "network"}),)
        world.adapters["adp_policy"] = FunctionAdapter(told.model_copy(update=changes), {"eval": call})
        try:
            gate = await refund_session(world, "ses_out", AMOUNT)
            assert isinstance(await gate.call(LOOKUP, ORDER, call_id="look"), Done)
            for name in ("one", "two"):
                answer = await gate.call(EVAL, args, call_id=name)
                assert isinstance(answer, Done), answer
            world.edit_directory(lambda tenant: tenant.update(users=[]))
            answer = await gate.call(EVAL, args, call_id="three")
            assert isinstance(answer, Refused), "the directory no longer knows the user"
            assert [reason.code for reason in answer.reasons] == ["identity_refused"]
        finally:
            await world.aclose()

    run(inside())
    assert seen == ["tool.dispatching"] * 2
