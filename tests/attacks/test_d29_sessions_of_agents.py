"""Attacks on sessions: an agent that repeats itself for ever, sends what is too large, and speaks for another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Batch
from contextos.contracts.ports.gates import Done, Refused
from contextos.errors import ConflictingRequest, Integrity, InvalidInput
from contextos.runtime.attempts import agent_session
from contextos.trust.journal.chain import append
from tests.sessions import EVAL, LOOKUP, REFUND, assert_replays, in_world, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld


def test_refused_calls_without_end_do_not_fill_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_session, "MAX_LOGGED", 60)

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_loop")
        for number in range(60):
            answer = await gate.call("adp_payments.drain", {}, call_id=f"c{number}")
            assert isinstance(answer, Refused)
            if answer.ended:
                break
        view = await gate.view()
        assert (view.state, view.record["status"]) == ("exhausted", "ESCALATED")
        assert "more than 60 journal entries" in view.record["rationale"]["failures"][0]["detail"]
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def deep() -> dict[str, Any]:
    args: dict[str, Any] = {}
    for _ in range(500):
        args = {"a": args}
    return args


def cyclic() -> dict[str, Any]:
    args: dict[str, Any] = {}
    args["a"] = args
    return args


ARGUMENTS: dict[str, Any] = {
    "no object": ["ord_881"],
    "nothing": None,
    "a number that is none": {"order_id": float("nan")},
    "a key that is not a text": {1: "ord_881"},
    "an object of Python": {"order_id": object()},
    "half a character": {"order_id": "\ud800"},
    "too large": {"order_id": "x" * 300_000},
    "too deep": deep(),
    "cyclic": cyclic(),
}


@pytest.mark.parametrize("args", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_arguments_that_are_no_json_are_refused_and_not_on_record(tmp_path: Path, args: Any) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_args")
        with pytest.raises(InvalidInput):
            await gate.call(LOOKUP, args, call_id="c1")
        entries = await world.stores.tenant(TENANT).read(gate.run_id)
        asked, answered = (next(one for one in entries if one.kind == f"call.{kind}") for kind in ("asked", "answered"))
        body = read_body(asked)
        assert body is not None
        assert (body["tool"], list(body["args"]), asked.key == answered.key) == (LOOKUP, ["$refused"], True)
        assert (read_body(answered) or {})["status"] == "refused"
        # The id is not taken, so the agent corrects the call under it.
        assert isinstance(await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="c1"), Done)

    in_world(tmp_path, play, stores="memory")


@pytest.mark.parametrize("call_id", ["", "x" * 129, "a\nb", "\u202e", 7, None])
def test_a_malformed_call_id_is_refused(tmp_path: Path, call_id: Any) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_ids")
        with pytest.raises(InvalidInput):
            await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id=call_id)

    in_world(tmp_path, play, stores="memory")


def test_what_an_agent_sends_is_redacted_before_it_is_recorded_and_is_no_argument(tmp_path: Path) -> None:
    card = "4111 1111 1111 1111"

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_card")
        answer = await gate.call(LOOKUP, {"order_id": card}, call_id="c1")
        assert isinstance(answer, Refused)
        entries = await world.stores.tenant("tenant_acme_prod").read(gate.run_id)
        assert not any(card.encode() in (entry.body or b"") for entry in entries)
        again = await gate.call(LOOKUP, {"order_id": card}, call_id="c1")
        assert again == answer

    in_world(tmp_path, play)


def test_evidence_of_an_earlier_call_counts_only_for_what_it_is_about(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_about", 900)
        for order in ("ord_881", "ord_883"):
            looked = await gate.call(LOOKUP, {"order_id": order}, call_id=f"look_{order}")
            assert isinstance(looked, Done)
        checked = await gate.call(EVAL, {"order_id": "ord_881", "amount_inr": 900}, call_id="check")
        assert isinstance(checked, Done)
        other = await gate.call(REFUND, {**refund_args(900), "order_id": "ord_883"}, call_id="other")
        assert isinstance(other, Refused)
        assert world.refunds() == []
        own = await gate.call(REFUND, refund_args(900), call_id="own")
        assert isinstance(own, Done)
        assert len(world.refunds()) == 1

    in_world(tmp_path, play)


def test_another_user_cannot_speak_in_a_session(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_of_771", 900)
        await read_first(gate, 900)
        for who in ({"user": "usr_772"}, {"agent": "agt_support_old"}, {"context": {"order_id": "ord_883"}}):
            with pytest.raises((ConflictingRequest, InvalidInput)):
                await refund_session(world, "ses_of_771", 900, **who)
        assert world.refunds() == []

    in_world(tmp_path, play)


@pytest.mark.parametrize("token", ["tok_nobody", "", "x" * 500])
def test_a_token_that_nobody_issued_opens_no_session(tmp_path: Path, token: str) -> None:
    async def play(world: TestWorld) -> None:
        with pytest.raises(InvalidInput):
            await refund_session(world, "ses_token", 900, user="usr_771", token=token)

    in_world(tmp_path, play, stores="memory")


def test_the_token_of_another_user_is_refused(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        with pytest.raises(InvalidInput, match="token"):
            await refund_session(world, "ses_token", 900, user="usr_771", token="tok_usr_772")
        gate = await refund_session(world, "ses_own", 900, user="usr_771", token="tok_usr_771")
        await read_first(gate, 900)
        assert isinstance(await gate.call(REFUND, refund_args(900), call_id="pay"), Done)

    in_world(tmp_path, play)


@pytest.mark.parametrize("kind", ["approval.answered", "effect.settled", "slot.answered", "run.cancel_requested"])
def test_an_entry_that_a_writer_of_the_store_appends_ends_the_drive_and_does_not_hang_it(
    tmp_path: Path, kind: str
) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_appended")
        store = world.stores.tenant(TENANT)
        entries = await store.read(gate.run_id)
        forged = append(
            entries, kind, "any", by="nobody", answer={"by": "nobody"}, at_us=entries[-1].at_us, salt=b"s" * 16
        )
        await store.commit(Batch(run=gate.run_id, entries=(forged,)))
        with pytest.raises(Integrity):
            await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
        with pytest.raises(Integrity):
            await replay(world.deployment, TENANT, gate.run_id)

    in_world(tmp_path, play)
