"""No share of traces loses a run with a gate, a failure, an incident or an effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import Logged
from contextos.telemetry.ended_run import EndedRunEntries
from contextos.telemetry.sampling import is_always_kept
from tests.unit.telemetry import runs


def reads_only() -> EndedRunEntries:
    """A run that only read: that of the small refund without the call that pays."""
    run = runs.ended("small")
    return replace(run, log=tuple(one for one in run.log if not one.key.startswith("0/s3")))


def with_entry(kind: str, body: Any) -> EndedRunEntries:
    run = reads_only()
    return replace(run, log=(*run.log[:-1], Logged(99, kind, "0/s9/1", 0, "runtime", body, ""), run.log[-1]))


def returned(**more: Any) -> dict[str, Any]:
    return {"outcome": "returned", "happened": False, "envelope": {"error": None}} | more


def test_a_run_that_only_read_is_left_to_the_share() -> None:
    assert not is_always_kept(reads_only())
    assert not is_always_kept(with_entry("tool.returned", returned()))


@pytest.mark.parametrize("name", ["small", "approved", "denied", "reopened"])
def test_a_run_with_an_effect_or_a_gate_is_kept(name: str) -> None:
    assert is_always_kept(runs.ended(name))


@pytest.mark.parametrize("end", ["rejected", "refused", "escalated", "exhausted", "cancelled", "of tomorrow"])
def test_any_end_but_completed_is_kept(end: str) -> None:
    run = reads_only()
    ended = run.log[-1]._replace(body=run.log[-1].body | {"end": end})
    assert is_always_kept(replace(run, log=(*run.log[:-1], ended)))


@pytest.mark.parametrize(
    "kind",
    [
        "approval.asked",
        "slot.asked",
        "capability.quarantined",
        "run.cancel_unproved",
        "run.reopened",
        "effect.settled",
        "tool.refused",
    ],
)
def test_gates_incidents_and_acts_are_kept_also_without_their_body(kind: str) -> None:
    assert kind in KINDS
    assert is_always_kept(with_entry(kind, None))


@pytest.mark.parametrize(
    "body",
    [
        returned(outcome="unknown"),
        returned(outcome="not_sent"),
        returned(happened=True),
        returned(drifted=True),
        returned(envelope={"error": {"code": "http_500"}}),
        None,
    ],
)
def test_a_call_that_failed_happened_drifted_or_was_erased_is_kept(body: Any) -> None:
    assert is_always_kept(with_entry("tool.returned", body))


@pytest.mark.parametrize("mode", ["local_write", "network", "delegated", "destructive"])
def test_a_call_that_can_have_an_effect_is_kept_whatever_mode_it_was_made_in(mode: str) -> None:
    body = {"envelope": {"approval_mode_highest": mode, "approval_mode_effective": "read_only"}}
    assert is_always_kept(with_entry("tool.dispatching", body))
