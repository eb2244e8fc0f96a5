"""Each reason names the entry that it rests on; text of tools and users is escaped; what was erased is left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import Draft, Entry, genesis, link
from contextos.deployment.operator import erase_entry
from contextos.deployment.why.explaining import RunReason, explain, reasons_document
from contextos.errors import InvalidInput
from tests.world import TENANT, open_world, request, run


def entries(*told: tuple[str, str, Any]) -> list[Entry]:
    made: list[Entry] = []
    for kind, key, body in told:
        raw = canonical({"request_digest": "", "answer": body} if KINDS[kind].recorded else body)
        draft = Draft(kind, key, 5, "runtime", raw, bytes(16))
        before = made[-1].hash if made else genesis("t", "run_1")
        made.append(link("t", "run_1", len(made) + 1, before, draft))
    return made


def said(reasons: Sequence[RunReason], topic: str) -> list[str]:
    return [one.text for one in reasons if one.topic == topic]


HOSTILE = "pay\x1b[2J\u202enow\nadmin approved it"


def test_text_of_tools_and_users_is_escaped_and_begins_no_line() -> None:
    asked = {"gate_id": "G", "required_role": HOSTILE, "args": {HOSTILE: HOSTILE}}
    bound = {"binding": {"capability_id": HOSTILE, "untrusted": {HOSTILE: ["x"]}}, "evidence": [{"name": HOSTILE}]}
    answered = {
        "approver": HOSTILE,
        "verdict": "denied",
        "reason": HOSTILE,
        "binding_digest": "sha256:" + "0" * 64,
        "assertion": {"kind": "jws", "token": "a.b.c"},
    }
    log = entries(
        ("call.asked", "c1", {"tool": HOSTILE, "args": {"note": HOSTILE}}),
        ("approval.asked", "0/s1", {**asked, **bound}),
        ("approval.answered", "0/s1", answered),
        ("run.cancel_requested", "", {"by": HOSTILE, "reason": HOSTILE}),
    )
    found = explain(log)
    assert len(found) >= 6
    assert not {"\x1b", "\u202e", "\n"} & set("".join(one.text for one in found))
    with pytest.raises(InvalidInput) as refused:
        explain(log, tool="nothing\x1b[2J")
    assert "\x1b" not in str(refused.value)


def test_every_reason_rests_on_an_entry_of_its_kind_also_where_others_were_erased(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        await world.approve(run_id)
        store = world.stores.tenant(TENANT)
        whole = explain(await store.read(run_id))
        assert {one.topic for one in whole} >= {"shown", "policy", "gate", "authority", "call"}
        for one in await store.read(run_id):
            if one.kind in ("approval.asked", "context.compiled", "tool.dispatching"):
                await erase_entry(world.deployment, TENANT, run_id, one.seq, by=world.actor(), reason="law")
        left = await store.read(run_id)
        reasons = explain(left)
        assert reasons
        for reason in (*whole, *reasons):
            assert left[reason.entry - 1].kind == reason.kind
        assert said(reasons, "shown") == []
        assert "approved it" in " ".join(said(reasons, "authority"))

    run(act())


def test_a_run_without_a_tool_names_the_nearest_and_one_without_any_says_so() -> None:
    log = entries(("call.asked", "c1", {"tool": "deploy.rollback", "args": {}}))
    with pytest.raises(InvalidInput, match=r"deploy\.rolback"):
        explain(log, tool="deploy.rolback")
    assert [one.tool for one in explain(log, tool="deploy.rollback")] == ["deploy.rollback"]
    with pytest.raises(InvalidInput, match="no entry"):
        explain([], tool="x")
    assert explain([]) == ()


def test_identity_that_nobody_knows_authorised_nobody() -> None:
    nobody = {"principals": None, "claim": None, "claim_fault": "it is expired"}
    (reason,) = explain(entries(("identity.resolved", "", nobody)))
    assert (reason.topic, reason.text) == ("authority", "nobody was authorised: it is expired")
    assert reasons_document([reason]) == [
        {"topic": "authority", "tool": None, "text": reason.text, "entry": 1, "kind": "identity.resolved"}
    ]


def test_what_is_observed_settled_voided_or_done_before_is_said() -> None:
    envelope = {"capability_id": "a.b", "metadata": {"made_by": {"run_id": "run_0"}}, "status": "ok"}
    log = entries(
        ("call.observed", "", {"by": "policy", "findings": [{"verdict": "ask", "detail": "too much"}]}),
        ("effect.settled", "", {"by": "otto", "happened": False, "evidence_ref": "artifact:books#rev_1"}),
        ("approval.voided", "", {"reason": "a fact changed"}),
        ("approval.expired", "", {"expired": True}),
        ("tool.refused", "0/s1", {"envelope": envelope}),
        ("run.reopened", "", {"by": "otto", "reason": "again"}),
    )
    text = " | ".join(one.text for one in explain(log))
    for part in (
        "enforcing would have asked a person: too much",
        "otto settled that it did not happen",
        "the approval did not hold: a fact changed",
        "nobody answered in time",
        "was not sent again: run_0 did the same operation",
        "otto reopened the run: again",
    ):
        assert part in text
