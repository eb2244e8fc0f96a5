"""Where a decision stands: the record's status, unless a person resolved or closed exactly that record."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.deployment.queries.checked_run import CheckedRun
from contextos.deployment.queries.decisions import DecisionView, checked_decision, decision_of
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ChainBroken
from contextos.trust.approvals.acts import sealed_act
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores
from tests.world import run

KEYS = KeyRing.from_seed(b"k" * 32)
RECORD = {"status": "ESCALATED", "record_hash": "sha256:aa"}


def view(state: str, record: dict[str, Any] | None) -> RunView:
    return RunView("t", "run_1", state, record, None, None)


def act(kind: str, *, record_hash: str = "sha256:aa", role: str = "operator") -> Draft:
    """An act under the stand-in, which has no signature."""
    arguments = {"run": "run_1", "record_hash": record_hash, "reason": "seen"}
    arguments |= {"status": "REJECTED"} if kind == "decision.resolved" else {}
    said = {"tenant_id": "t", "kind": kind, "actor": "user_5", "arguments": arguments, "expected": 9}
    body = {"act": said, "role": role, "assertion": {"kind": "unsafe_local", "token": None}, "key": None}
    return sealed_act("t", Draft(kind, "run_1", 1, "user_5", b"", bytes(16)), body, KEYS)


def stands(ended: RunView, *acts: Draft) -> DecisionView:
    store = MemoryStores().tenant("t")
    for one in acts:
        run(store.commit(Batch(CONTROL, shared=((CONTROL, one),))))
    return run(decision_of(store, ended, KEYS))


@pytest.mark.parametrize(
    ("state", "record", "status"),
    [
        ("received", None, "IN_FLIGHT"),
        ("executing", {"status": "DEFERRED"}, "IN_FLIGHT"),
        ("resolved", RECORD, "IN_FLIGHT"),
        ("waiting", {"status": "DEFERRED"}, "DEFERRED"),
        ("escalated", RECORD, "ESCALATED"),
        ("completed", {"status": "DECIDED", "record_hash": "sha256:bb"}, "DECIDED"),
        ("erased", None, None),
    ],
)
def test_the_status_without_any_act(state: str, record: dict[str, Any] | None, status: str | None) -> None:
    assert stands(view(state, record)) == DecisionView(status)  # type: ignore[arg-type]


def test_the_last_act_about_this_very_record_counts() -> None:
    ended = view("escalated", RECORD)
    resolved = act("decision.resolved")
    assert stands(ended, resolved) == DecisionView("REJECTED", "user_5", "seen")
    assert stands(ended, resolved, act("decision.closed")).status == "CLOSED"
    assert stands(ended, act("decision.resolved", record_hash="sha256:cc")).status == "ESCALATED"


@pytest.mark.parametrize(
    "altered",
    [
        act("decision.closed", role="auditor"),
        act("decision.closed")._replace(by="somebody"),
        act("decision.closed")._replace(body=b"{}"),
    ],
)
def test_an_act_that_the_runtime_did_not_record_is_a_fault_and_no_status(altered: Draft) -> None:
    ended = view("escalated", RECORD)
    with pytest.raises(ChainBroken):
        stands(ended, altered)
    assert stands(ended, Draft("run.cancelled", "run_1", 1, "user_5", b"{}", bytes(16))).status == "ESCALATED"


def test_a_run_that_does_not_verify_keeps_its_fault() -> None:
    store = MemoryStores().tenant("t")
    assert run(checked_decision(store, CheckedRun("t", "run_1", (), "`run_1` entry 1: is missing"), KEYS)) == (
        DecisionView(None),
        "`run_1` entry 1: is missing",
    )
