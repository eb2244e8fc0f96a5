"""A6: a write for a user without their delegation, with somebody else's, with a void token, or under a forged claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.world import TENANT, TestWorld, open_world, request

USER, AGENT, REF = "usr_771", "agt_support", "tok_usr_771"
HOUR_S = 3_600
FOREVER_S = 253_402_300_799  # the last second of the year 9999


def token(**changes: Any) -> dict[str, Any]:
    """A delegation of INR refunds by the run's user to its agent, as the issuer of its token knows it."""
    scopes = ["orders.read", "payments.refund"]
    return {"subject": USER, "agent_id": AGENT, "scopes": scopes, "expires_at": FOREVER_S, **changes}


def asking(number: int, **delegation: Any) -> dict[str, Any]:
    body = request(900 + number, f"req_a06_{number}")
    body["user"]["delegation"] |= delegation
    return body


def issue(world: TestWorld, **tokens: Any) -> None:
    world.edit_directory(lambda tenant: tenant.update(delegations=tokens))


def refused_for(world: TestWorld, body: dict[str, Any]) -> tuple[str, list[tuple[str, list[str]]], int]:
    """The state of the run, the code and the fields of each failure, and the number of payments."""
    view = run_in(world, body)
    failures = [(one["code"], one["facts"]) for one in view.record["rationale"]["failures"]]
    return view.state, failures, len(world.refunds())


def at(field: str) -> tuple[str, list[tuple[str, list[str]]], int]:
    return "refused", [("identity_refused", [field])], 0


def run_in(world: TestWorld, body: dict[str, Any]) -> Any:
    return world.extra["loop"].run(world.invoke(body))


@pytest.fixture
def world(tmp_path: Path, stores: str) -> Any:
    import asyncio

    with asyncio.Runner() as loop:
        made = loop.run(open_world(tmp_path, stores=stores))
        made.extra["loop"] = loop
        yield made
        loop.run(made.aclose())


def test_without_a_delegation_nothing_is_written_for_the_user(world: TestWorld) -> None:
    body = asking(1)
    del body["user"]["delegation"]
    view = run_in(world, body)
    assert view.record["status"] != "DECIDED"
    assert "adp_payments.issue_refund" in view.record["rationale"]["failures"][0]["detail"]
    assert world.refunds() == []


VOID: dict[str, dict[str, Any]] = {
    "unknown": {},
    "expired": {REF: token(expires_at=HOUR_S)},
    "another user's": {REF: token(subject="usr_772")},
    "for another agent": {REF: token(agent_id="agt_other")},
}


@pytest.mark.parametrize("tokens", VOID.values(), ids=VOID)
def test_a_token_that_does_not_hold_refuses_the_run(world: TestWorld, tokens: dict[str, Any]) -> None:
    issue(world, **tokens)
    assert refused_for(world, asking(2)) == at("user.delegation.token_ref")


WITHOUT_ONE = {
    "none": {},
    "by another user": {"tok": token(subject="usr_772")},
    "for another agent": {"tok": token(agent_id="agt_other")},
    "that is over": {"tok": token(expires_at=1)},
    "and two in force": {"one": token(), "two": token(scopes=["orders.read"])},
}


@pytest.mark.parametrize("tokens", WITHOUT_ONE.values(), ids=WITHOUT_ONE)
def test_a_delegation_without_a_reference_needs_the_one_that_the_directory_lists(
    world: TestWorld, tokens: dict[str, Any]
) -> None:
    issue(world, **tokens)
    assert refused_for(world, asking(13, token_ref=None)) == at("user.delegation.token_ref")


def test_a_delegation_without_a_reference_lends_no_more_scopes_than_the_listed_one(world: TestWorld) -> None:
    issue(world, **{REF: token(scopes=["orders.read"]), "over": token(expires_at=1)})
    assert refused_for(world, asking(14, token_ref=None)) == at("user.delegation.scopes")
    issue(world, **{REF: token(), "over": token(expires_at=1)})
    assert run_in(world, asking(15, token_ref=None)).state == "completed"


def test_a_token_lends_no_scope_that_it_does_not_have(world: TestWorld) -> None:
    issue(world, **{REF: token(scopes=["orders.read"])})
    assert refused_for(world, asking(3)) == at("user.delegation.scopes")


def test_a_delegation_by_another_user_refuses_the_run(world: TestWorld) -> None:
    assert refused_for(world, asking(4, subject="usr_772")) == at("user.delegation.subject")


def test_a_token_in_force_of_the_user_for_the_agent_pays(world: TestWorld) -> None:
    issue(world, **{REF: token()})
    assert run_in(world, asking(5)).state == "completed"
    assert len(world.refunds()) == 1


@pytest.mark.parametrize("gone", ["revoked", "expired"])
def test_a_token_that_ends_behind_the_answer_voids_the_approval(world: TestWorld, gone: str) -> None:
    issue(world, **{REF: token(expires_at=world.clock.at_us // 1_000_000 + 60)})
    body = asking(6)
    body["input"]["context"]["refund_amount"] = 4200
    body["input"]["message"] = "Refund order ord_881 for INR 4200."
    waiting = run_in(world, body)
    assert waiting.state == "waiting"

    def end() -> None:
        if gone == "revoked":
            issue(world)
        else:
            world.clock.at_us += 120 * 1_000_000

    assert world.extra["loop"].run(world.approve(waiting.run_id, then=end)).state != "completed"
    assert world.refunds() == []


def test_a_claim_that_this_runtime_did_not_mint_or_that_expired_refuses_the_run(world: TestWorld) -> None:
    earlier = run_in(world, asking(7))
    entries = world.extra["loop"].run(world.stores.tenant(TENANT).read(earlier.run_id))
    minted = next(json.loads(one.body)["answer"]["claim"] for one in entries if one.kind == "identity.resolved")
    paid = len(world.refunds())

    def state(number: int, **changes: Any) -> str:
        body = asking(number)
        body["agent"]["identity_claim"] = {**minted, **changes}
        view = run_in(world, body)
        return str(view.record["rationale"]["failures"][0]["facts"][0] if view.state == "refused" else view.state)

    assert state(8, scopes=["orders.read", "payments.refund", "admin"]) == "agent.identity_claim"
    assert state(9, exp=minted["exp"] + HOUR_S) == "agent.identity_claim"
    assert state(10, claim_hash="sha256:" + "0" * 64) == "agent.identity_claim"
    assert len(world.refunds()) == paid
    assert state(11) == "agent.identity_claim", "one that the runtime minted for another run, within its time"
    world.clock.at_us += 2 * HOUR_S * 1_000_000
    assert state(12) == "agent.identity_claim", "the same claim after its time"
    assert len(world.refunds()) == paid
