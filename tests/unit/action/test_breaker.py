"""The circuit breaker: opens after failures in a row, lets one probe through, closes or opens again."""

from __future__ import annotations

import pytest

from contextos.action.breaker import Circuit, CircuitBreakers, CircuitKey
from contextos.contracts.admission_limits import AdmissionLimits

LIMITS = AdmissionLimits(breaker_failures_in_a_row=3, breaker_cool_down_ms=10)
ONE: CircuitKey = ("tenant_a", "adp", "pay")
COOL_US = 10_000


def call(breakers: CircuitBreakers, place: CircuitKey, at_us: int, *, answer: bool) -> Circuit | None:
    """One call and what came of it; None where it was not let through."""
    circuit, goes, _ = breakers.admit(place, at_us)
    return breakers.report(place, circuit.changes, at_us, answer=answer)[0] if goes else None


def opened(at_us: int = 0) -> CircuitBreakers:
    breakers = CircuitBreakers(LIMITS)
    for _ in range(3):
        call(breakers, ONE, at_us, answer=False)
    return breakers


@pytest.mark.requirement("A-BREAKER")
def test_it_opens_after_failures_in_a_row_and_nothing_goes_through_until_it_has_cooled_down() -> None:
    breakers = CircuitBreakers(LIMITS)
    states = [call(breakers, ONE, 0, answer=answer) for answer in (False, False, True, False, False, False)]
    assert [one.state for one in states if one] == ["closed"] * 5 + ["open"]
    assert call(breakers, ONE, COOL_US - 1, answer=True) is None
    assert call(breakers, ONE, COOL_US, answer=True) is not None


@pytest.mark.requirement("A-BREAKER")
def test_half_open_lets_exactly_one_call_through() -> None:
    breakers = opened()
    results = [breakers.admit(ONE, COOL_US) for _ in range(3)]
    assert [(circuit.state, goes, changed) for circuit, goes, changed in results] == [
        ("half_open", True, True),
        ("half_open", False, False),
        ("half_open", False, False),
    ]


@pytest.mark.parametrize(("answer", "state"), [(True, "closed"), (False, "open")])
def test_the_probe_closes_it_or_opens_it_again(answer: bool, state: str) -> None:
    breakers = opened()
    results = call(breakers, ONE, COOL_US, answer=answer)
    assert results is not None
    assert results.state == state
    assert results.retry_at_us == (0 if answer else 2 * COOL_US)


def test_after_closing_it_takes_as_many_failures_as_before() -> None:
    breakers = opened()
    call(breakers, ONE, COOL_US, answer=True)
    states = [call(breakers, ONE, COOL_US, answer=False) for _ in range(3)]
    assert [one.state for one in states if one] == ["closed", "closed", "open"]


def test_a_probe_that_is_never_heard_of_is_followed_by_another() -> None:
    breakers = opened()
    assert breakers.admit(ONE, COOL_US)[1]
    assert not breakers.admit(ONE, 2 * COOL_US - 1)[1]
    assert breakers.admit(ONE, 2 * COOL_US)[1]


def test_a_clock_that_is_put_back_keeps_no_circuit_shut() -> None:
    breakers = opened(at_us=3_600_000_000)
    assert not breakers.admit(ONE, 3_600_000_000)[1]
    assert breakers.admit(ONE, 0)[1]


@pytest.mark.parametrize("answer", [True, False])
def test_a_call_that_began_before_a_change_of_state_does_not_count_after_it(answer: bool) -> None:
    breakers = CircuitBreakers(LIMITS)
    early = breakers.admit(ONE, 0)[0]
    for _ in range(3):
        call(breakers, ONE, 0, answer=False)
    assert breakers.report(ONE, early.changes, 1, answer=answer) == (breakers.admit(ONE, 1)[0], False)
    probe = breakers.admit(ONE, COOL_US)[0]
    assert breakers.report(ONE, early.changes, COOL_US, answer=answer)[0] == probe


@pytest.mark.requirement("A-BREAKER-OWN")
@pytest.mark.parametrize("other", [("tenant_b", *ONE[1:]), ("tenant_a", "other", "pay"), ("tenant_a", "adp", "get")])
def test_failures_open_the_circuit_of_this_tenant_adapter_and_capability_alone(other: CircuitKey) -> None:
    breakers = opened()
    assert not breakers.admit(ONE, 1)[1]
    assert breakers.admit(other, 1)[1]


def test_what_never_failed_takes_no_room() -> None:
    breakers = CircuitBreakers(LIMITS)
    for number in range(100):
        call(breakers, (f"tenant_{number}", "adp", "pay"), 0, answer=True)
    assert len(breakers._circuits) == 0
