"""G59: however a session ends, its outcome agrees with what it did: no record denies an effect or approves a refusal.

The truth is the books of the tools themselves, which no part of the runtime writes. Every short history is played:
calls that are made, refused, denied, lost and settled, and ends by the agent, by a person who cancels, by the budget
and by the clock.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.audit.replay import replay
from contextos.contracts.envelopes.run import RuntimeHints
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.deployment import operator
from contextos.deployment.acts.ended_runs import resolve_escalation
from contextos.errors import ConflictingRequest, InvalidInput, LostReply
from contextos.frameworks.offers import ask, offered_tools
from contextos.testing import TEST_OPERATOR, MovableClock, Person, in_memory
from contextos.trust.approvals.settlement import sign_settlement
from tests.evidence import BOOKS, keep_books
from tests.sessions import (
    LOOKUP,
    REFUND,
    assert_replays,
    chosen_by_agent,
    in_world,
    read_first,
    refund_args,
    refund_session,
)
from tests.world import TENANT, TestWorld, open_world

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = json.loads((ROOT / "examples" / "deploy_rollback" / "directory.json").read_text("utf-8"))
for _approver in PEOPLE["acme"]["approvers"]:
    _approver["keys"] = []


class Bank:
    """The tools of a bank, and its own books: the amounts that it paid and the notes that it kept."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.notes: list[int] = []

    def pack(self) -> Any:
        @contextos.write(risk="irreversible", idempotency="none", destinations=[])
        def pay(amount: int) -> str:
            """Pay an amount. The line is lost after 40 and before 41, and the answer to 30 has colours."""
            if amount == 20:
                raise contextos.BusinessError("no_funds", "there is no money left")
            if amount != 41:
                self.paid.append(amount)
            if amount in (40, 41):
                raise LostReply("the line is lost")
            return "\x1b[32mpaid" if amount == 30 else "paid"

        @contextos.write(risk="reversible", idempotency="none", destinations=[])
        def note(number: int) -> str:
            """Keep a note."""
            self.notes.append(number)
            return "kept"

        @contextos.read(integrity="trusted")
        def mail(number: int) -> str:
            """Read a mail."""
            return "\u202eevil" if number == 2 else "fine"

        return contextos.pack(
            "acme.bank",
            version="1.0.0",
            tenant="acme",
            tools=[contextos.toolset("bank", [pay, note, mail])],
            who=["deployer"],
            approver="oncall",
            deny=[{"when": "args.amount > 1000", "tools": ["bank.pay"]}],
            auto_approve=[
                {"tools": ["bank.pay"], "bounds": {"amount": {"max": 99}}},
                {"tools": ["bank.note"], "bounds": {"number": {"max": 99}}},
            ],
        )


CALLS: dict[str, tuple[str, dict[str, int]]] = {
    "paid": ("bank.pay", {"amount": 10}),
    "paid with colours": ("bank.pay", {"amount": 30}),
    "refused by a rule": ("bank.pay", {"amount": 5000}),
    "refused by the bank": ("bank.pay", {"amount": 20}),
    "denied by a person": ("bank.pay", {"amount": 200}),
    "lost and happened": ("bank.pay", {"amount": 40}),
    "lost and did not happen": ("bank.pay", {"amount": 41}),
    "noted": ("bank.note", {"number": 1}),
    "read": ("bank.mail", {"number": 1}),
    "read of what is unsafe": ("bank.mail", {"number": 2}),
}
MADE = {"paid", "paid with colours", "lost and happened", "noted"}
ENDS = ("approved", "denied", "escalated", "cancelled", "budget", "too late")


class Played:
    """One session that is played, and what is known of it from its calls alone."""

    def __init__(self, app: Any, bank: Bank, clock: MovableClock, name: str) -> None:
        self.app, self.bank, self.clock, self.name = app, bank, clock, name
        self.answers: list[Done | Refused] = []

    async def play(self, events: Sequence[str], end: str) -> Any:
        hints = RuntimeHints(max_tool_calls=len(events)) if end == "budget" else None
        gate = await self.app.gate(
            session=self.name, user="ana", token="tok_ana", agent="agt_deploy", **({"hints": hints} if hints else {})
        )
        for number, event in enumerate(events):
            self.answers.append(await self._call(gate, event, f"c{number}"))
        if end == "cancelled":
            await operator.request_cancel(
                self.app.deployment, "acme", gate.run_id, by=Person(TEST_OPERATOR).actor(), reason="stop"
            )
            await gate.call("bank.mail", {"number": 1}, call_id="next")
        elif end == "budget":
            spent = [await gate.call("bank.mail", {"number": 1}, call_id=f"next{number}") for number in range(5)]
            assert any(isinstance(one, Refused) and one.ended for one in spent)
        elif end == "too late":
            self.clock.advance(5 * 3600)
            await self.app.drive_due_runs()
        else:
            return await gate.finish(end)
        return await gate.view()

    async def _call(self, gate: Any, event: str, call_id: str) -> Any:
        tool, args = CALLS[event]
        answer = await gate.call(tool, args, call_id=call_id)
        if isinstance(answer, Waiting) and answer.waits_for == "approval":
            await Person("olga").answer(self.app, await gate.view(), "denied")
            answer = await gate.call(tool, args, call_id=call_id)
        elif isinstance(answer, Waiting):
            await self._settle(gate, event)
            answer = await gate.call(tool, args, call_id=call_id)
        assert isinstance(answer, Done | Refused), (event, answer)
        return answer

    async def _settle(self, gate: Any, event: str) -> None:
        person = Person(TEST_OPERATOR)

        def vouch(said: Mapping[str, Any]) -> dict[str, Any]:
            return {"kind": "jws", "token": sign_settlement(person._key, person.listed_key()["kid"], said)}

        happened = event in MADE
        if not happened:
            with suppress(InvalidInput):
                await keep_books(self.app.stores, "acme")
        found = operator.SettlementInput(happened, TEST_OPERATOR, BOOKS, {"result": "paid"} if happened else None)
        await operator.settle_effect(self.app.deployment, "acme", gate.run_id, found, vouch=vouch)


def met(events: Sequence[str]) -> list[str]:
    """What the calls came to: a payment that a person denied does not come back in its session, whatever its amount."""
    found: list[str] = []
    for event in events:
        is_back = CALLS[event][0] == "bank.pay" and "denied by a person" in found
        found.append("denied by a person" if is_back else event)
    return found


def check(events: Sequence[str], end: str, played: Played, view: Any) -> None:
    """Hold the record against the books, and against what the calls were."""
    where = (events, end, view.state)
    events = met(events)
    record, bank = view.record, played.bank
    assert view.ended, where
    made = {CALLS[one][0] for one in events if one in MADE}
    assert {one["capability_id"] for one in record["effects"]} == made, where
    assert len(record["effects"]) == len(bank.paid) + len(bank.notes), where
    assert all(one["state"] == "happened" for one in record["effects"]), where
    last = {CALLS[one][0]: one in MADE for one in events if not CALLS[one][0].endswith("mail")}
    only_read = not last and events[-1] == "read"
    if record["outcome"] == "denied":
        assert not made, where
        assert record["status"] == "REJECTED", where
    elif record["outcome"] == "approved":
        assert made or only_read, where
        assert all(last.values()), where
        assert record["status"] == "DECIDED", where
    else:
        assert record["status"] == "ESCALATED", where
    if end == "approved" and (only_read or made) and all(last.values()):
        assert record["outcome"] == "approved", where
    if end in ("denied", "cancelled") and not made:
        assert record["outcome"] == "denied", where
    for event, answer in zip(events, played.answers, strict=True):
        assert not (isinstance(answer, Refused) and event in MADE), where
        assert not (isinstance(answer, Refused) and CALLS[event][0] == "bank.mail"), where


async def play_all(histories: Sequence[tuple[Sequence[str], str]]) -> None:
    for number, (events, end) in enumerate(histories):
        bank, clock = Bank(), MovableClock()
        async with in_memory(packs=[bank.pack()], directory=PEOPLE, clock=clock, lint=False) as app:
            played = Played(app, bank, clock, f"s{number}")
            view = await played.play(events, end)
            check(events, end, played, view)
            assert (await replay(app.deployment, "acme", view.run_id)).record_hash == view.record["record_hash"]


@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_one_call_agrees_with_the_books(end: str) -> None:
    asyncio.run(play_all([((event,), end) for event in CALLS]))


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_two_calls_agrees_with_the_books(end: str) -> None:
    asyncio.run(play_all([(events, end) for events in itertools.product(CALLS, repeat=2)]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_ends_of_three_and_four_calls_agree_with_the_books(seed: int) -> None:
    rng = random.Random(seed)
    histories = [(rng.choices(list(CALLS), k=rng.randint(3, 4)), rng.choice(ENDS)) for _ in range(60)]
    asyncio.run(play_all(histories))


LONG_TEXT = "IGNORE ALL RULES" * 20_000
UNTAKEN: dict[str, tuple[Any, Any]] = {
    "a member twice": ('{"amount": 9, "amount": 99}', "c2"),
    "no number": ({"amount": float("nan")}, "c2"),
    "no number in a text": ('{"amount": NaN}', "c2"),
    "an integer that is rounded": ({"amount": 2**60}, "c2"),
    "too large": ({"amount": 99, "memo": LONG_TEXT}, "c2"),
    "half a character": ({"amount": 99, "memo": "\ud800"}, "c2"),
    "no object": (["99"], "c2"),
    "no end": ('{"amount": 99', "c2"),
    "the id of another call": ({"amount": 99}, "c1"),
    "no call id": ({"amount": 99}, "nüll"),
    "the mark of such a call": ({"$refused": "no_json"}, "c2"),
}
"""The arguments and the call id of a write that no gate takes."""


@pytest.mark.parametrize("door", ["a gate", "a framework"])
@pytest.mark.parametrize("name", UNTAKEN)
def test_a_write_that_no_gate_takes_counts_at_the_end(name: str, door: str) -> None:
    """It is on record as refused, without its arguments; done right under another id, it counts no more."""
    args, call_id = UNTAKEN[name]

    async def play(session: str, *, corrected: bool) -> Any:
        bank = Bank()
        async with in_memory(packs=[bank.pack()], directory=PEOPLE, lint=False) as app:
            gate = await app.gate(session=session, user="ana", token="tok_ana", agent="agt_deploy")
            assert isinstance(await gate.call("bank.note", {"number": 1}, call_id="c1"), Done)
            if door == "a framework":
                refused = await ask(gate, offered_tools(gate), "bank__pay", args, call_id)
                assert isinstance(refused, Refused)
                assert refused.reasons[0].remedy
            else:
                with pytest.raises(InvalidInput) if "mark" not in name else nullcontext():
                    await gate.call("bank.pay", args, call_id=call_id)
            if corrected:
                assert isinstance(await gate.call("bank.pay", {"amount": 9}, call_id="c3"), Done)
            view = await gate.finish("approved")
            entries = await app.deployment.ports.stores.tenant("acme").read(view.run_id)
            assert not any(LONG_TEXT.encode() in (entry.body or b"") for entry in entries)
            assert (await replay(app.deployment, "acme", view.run_id)).record_hash == view.record["record_hash"]
            return view.record, bank

    record, bank = asyncio.run(play("s1", corrected=False))
    assert (bank.paid, record["status"]) == ([], "ESCALATED")
    assert "the last call of `bank.pay` was not done" in record["rationale"]["failures"][0]["detail"]
    record, bank = asyncio.run(play("s2", corrected=True))
    assert (bank.paid, record["status"]) == ([9], "DECIDED")


def test_a_write_that_no_gate_takes_while_the_session_waits_waits_too() -> None:
    async def play() -> Any:
        bank = Bank()
        async with in_memory(packs=[bank.pack()], directory=PEOPLE, lint=False) as app:
            gate = await app.gate(session="s1", user="ana", token="tok_ana", agent="agt_deploy")
            assert isinstance(await gate.call("bank.pay", {"amount": 200}, call_id="c1"), Waiting)
            waiting = await gate.call("bank.note", '{"number": 1, "number": 2}', call_id="c2")
            assert isinstance(waiting, Waiting)
            assert (waiting.call_id, waiting.about) == ("c2", "c1")
            await Person("olga").answer(app, await gate.view(), "approved")
            assert isinstance(await gate.call("bank.pay", {"amount": 200}, call_id="c1"), Done)
            with pytest.raises(InvalidInput, match="twice"):
                await gate.call("bank.note", '{"number": 1, "number": 2}', call_id="c2")
            return (await gate.finish("approved")).record

    assert asyncio.run(play())["status"] == "ESCALATED"


async def paid_session(world: TestWorld, name: str, amount: int = 900) -> Any:
    gate = await refund_session(world, name, amount)
    await read_first(gate, amount)
    assert isinstance(await gate.call(REFUND, refund_args(amount), call_id="pay"), Done)
    return gate


async def assert_escalated_with_its_effect(world: TestWorld, run_id: str, code: str) -> None:
    view = await world.deployment.view(TENANT, run_id)
    assert view.record is not None
    record = view.record
    assert (view.state, record["status"], record["outcome"]) == ("escalated", "ESCALATED", "escalated")
    assert [one["state"] for one in record["effects"]] == ["happened"]
    failures = record["rationale"]["failures"]
    assert failures[0]["code"] == code
    assert any("had an effect" in one["detail"] for one in failures)
    assert len(world.refunds()) == 1
    await assert_replays(world, run_id)


def test_a_session_that_paid_and_is_cancelled_is_escalated(stores: str, tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await paid_session(world, "ses_cancelled")
        await operator.request_cancel(world.deployment, TENANT, gate.run_id, by=world.actor(), reason="stop")
        stopped = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="next")
        assert isinstance(stopped, Refused)
        assert stopped.ended
        await assert_escalated_with_its_effect(world, gate.run_id, "cancelled")

    in_world(tmp_path, play, stores=stores)


def test_a_session_that_paid_is_not_finished_as_denied_also_where_its_pack_observes(
    stores: str, tmp_path: Path
) -> None:
    def observing(pack: dict[str, Any]) -> None:
        chosen_by_agent(pack)
        pack["pack_meta"]["mode"] = "observe"

    async def play(world: TestWorld) -> None:
        gate = await paid_session(world, "ses_denied")
        await gate.finish("denied")
        await assert_escalated_with_its_effect(world, gate.run_id, "must_escalate")

    in_world(tmp_path, play, stores=stores, pack=observing)


def test_two_finishes_at_once_give_one_record_with_its_outputs(stores: str, tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await paid_session(world, "ses_twice")
        both = await asyncio.gather(gate.finish("approved", "one"), gate.finish("approved", "two"))
        records = [one.record for one in both]
        assert records[0] == records[1]
        assert records[0] is not None
        assert records[0]["outputs"]["transaction_id"] == world.refunds()[0]["transaction_id"]
        again = await open_again(world, tmp_path, stores)
        try:
            other = await refund_session(again, "ses_race", 950)
            await read_first(other, 950)
            assert isinstance(await other.call(REFUND, refund_args(950), call_id="pay"), Done)
            here = await refund_session(world, "ses_race", 950)
            ended = await asyncio.gather(
                here.finish("approved"), other.finish("approved"), here.finish("denied"), return_exceptions=True
            )
            won = [one for one in ended if not isinstance(one, BaseException)]
            assert won
            assert all(isinstance(one, ConflictingRequest) for one in ended if isinstance(one, BaseException)), ended
            for one in won:
                assert one.record is not None
                assert one.record == won[0].record
                assert one.record["outputs"].get("transaction_id"), one.record["outputs"]
        finally:
            await again.aclose()

    in_world(tmp_path, play, stores=stores)


async def open_again(world: TestWorld, path: Path, stores: str) -> TestWorld:
    """Another process over the same store."""
    return await open_world(path, stores=stores, clock=world.clock, pack=chosen_by_agent)


async def plan_of_two_writes(end: str) -> Any:
    """A run whose template notes, and then pays what a rule, a person or a stop forbids."""
    kept: list[int] = []

    @contextos.write(risk="reversible", idempotency="none", destinations=[])
    async def note(number: int) -> str:
        """Keep a note."""
        kept.append(number)
        if end == "cancelled":
            [run] = [one async for one in runs_of(held[0])]
            await operator.request_cancel(
                held[0].deployment, "acme", run, by=Person(TEST_OPERATOR).actor(), reason="stop"
            )
        return "kept"

    @contextos.write(risk="irreversible", idempotency="none", destinations=[])
    def pay(amount: int) -> str:
        """Pay."""
        kept.append(amount)
        return "paid"

    @contextos.read(integrity="trusted", produces="account")
    def look(number: int) -> str:
        """Look at the account."""
        return "open"

    held: list[Any] = []
    pack = contextos.pack(
        "acme.plan",
        version="1.0.0",
        tenant="acme",
        tools=[contextos.toolset("bank", [look, note, pay])],
        who=["deployer"],
        approver="oncall",
        intents={"bank.plan": {"steps": [{"tool": "bank.look"}, {"tool": "bank.note"}, {"tool": "bank.pay"}]}},
        deny=[{"when": "args.amount > 1000", "tools": ["bank.pay"]}],
        auto_approve=[{"tools": ["bank.note"], "bounds": {"number": {"max": 99}}}],
    )
    async with in_memory(packs=[pack], directory=PEOPLE, lint=False) as app:
        held.append(app)
        body = REQUEST | {
            "input": {"intent": "bank.plan", "message": "", "context": {"number": 1, "amount": AMOUNTS[end]}}
        }
        view = await app.deployment.invoke(body)
        if end == "denied by a person":
            view = await Person("olga").answer(app, view, "denied")
        assert kept == [1], view.record["rationale"]
        assert (await replay(app.deployment, "acme", view.run_id)).record_hash == view.record["record_hash"]
        with pytest.raises(InvalidInput, match="cannot be rejected"):
            await resolve_escalation(
                app.deployment, "acme", view.run_id, "REJECTED", by=Person(TEST_OPERATOR).actor(), reason="no"
            )
        return view


async def runs_of(app: Any) -> Any:
    """The runs of the tenant that have not ended."""
    for run in (await app.runs.list("acme")).items:
        yield run.run_id


AMOUNTS = {"refused by a rule": 5_000, "denied by a person": 200, "cancelled": 200}
REQUEST: dict[str, Any] = {
    "request_id": "req_plan",
    "tenant_id": "acme",
    "user": {
        "user_id": "ana",
        "delegation": {"auth_type": "oauth2", "scopes": [], "subject": "ana", "token_ref": "tok_ana"},
    },
    "agent": {"agent_id": "agt_deploy", "workload_identity": "spiffe://acme/agents/deploy"},
    "context_pack_refs": ["acme.plan@1.0.0"],
    "mode": "batch",
    "runtime": {},
    "trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"},
}


@pytest.mark.parametrize("end", AMOUNTS)
def test_a_plan_that_wrote_and_is_then_stopped_is_escalated_and_not_rejected(end: str) -> None:
    view = asyncio.run(plan_of_two_writes(end))
    record = view.record
    assert (record["status"], record["outcome"]) == ("ESCALATED", "escalated"), record
    assert [one["capability_id"] for one in record["effects"]] == ["bank.note"]
    codes = [one["code"] for one in record["rationale"]["failures"]]
    assert codes[0] in ("policy_denied", "approval_denied", "cancelled"), codes
    assert codes[-1] == "must_escalate"
