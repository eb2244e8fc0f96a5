"""Circuit breakers: a capability whose calls failed too often in a row is not called for a while, so it can recover.

    closed --(failures in a row)--> open --(after the cool-down)--> half_open --answered--> closed
                                       ^                                  |
                                       +--------------failed--------------+

There is one circuit for each tenant, adapter and capability. Only transport failures count: `Unavailable`,
`LostReply` and timeouts; a business error is an answer. A half-open circuit lets one call through. The recorded answer
of a call shows whether the call was admitted, so a replay needs no breaker. An open circuit says nothing about the
outcome of earlier calls.
Source: Reference Architecture, "Failure semantics".
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.documents.operations import CircuitDocument

CircuitState = Literal["closed", "open", "half_open"]
CircuitKey = tuple[str, str, str]
"""(tenant, adapter, capability)."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """The state of one circuit breaker. Times are Unix microseconds.

    `changes` counts the changes of state; the report of a call that began before the last one is ignored. `retry_at_us`
    is when the next call is admitted: 0 if closed; if half open, the time of another trial call if the current one
    never reports.
    """

    state: CircuitState = "closed"
    failures: int = 0
    since_us: int = 0
    retry_at_us: int = 0
    changes: int = 0


def admit_call(circuit: Circuit, limits: AdmissionLimits, now_us: int) -> Circuit | None:
    """Return the circuit breaker's state after it admits one call at `now_us` (Unix microseconds), or None if it
    refuses.

    >>> opened = Circuit("open", retry_at_us=10)
    >>> admit_call(opened, AdmissionLimits(), 9)
    >>> admit_call(opened, AdmissionLimits(), 10).state
    'half_open'
    """
    if circuit.state == "closed":
        return circuit
    cool_down_us = limits.breaker_cool_down_ms * 1_000
    # A clock that was set back must not keep the circuit open for longer than the cool-down.
    if 0 < circuit.retry_at_us - now_us <= cool_down_us:
        return None
    return _change_state(circuit, "half_open", now_us, now_us + cool_down_us)


def after_reply(circuit: Circuit, began_at: int, now_us: int) -> Circuit:
    """Return the circuit breaker's state after a call was answered.

    `began_at` is the value of `changes` when the call was admitted; `now_us` is in Unix microseconds.
    """
    if began_at != circuit.changes:
        return circuit
    if circuit.state == "closed":
        return replace(circuit, failures=0)
    return replace(_change_state(circuit, "closed", now_us, 0), failures=0)


def after_failure(circuit: Circuit, limits: AdmissionLimits, began_at: int, now_us: int) -> Circuit:
    """Return the circuit breaker's state after a call failed in transport (unreachable, reply lost or timed out).

    `began_at` is the value of `changes` when the call was admitted; `now_us` is in Unix microseconds.
    """
    if began_at != circuit.changes:
        return circuit
    counted = replace(circuit, failures=circuit.failures + 1)
    if circuit.state == "closed" and counted.failures < limits.breaker_failures_in_a_row:
        return counted
    return _change_state(counted, "open", now_us, now_us + limits.breaker_cool_down_ms * 1_000)


def _change_state(circuit: Circuit, state: CircuitState, now_us: int, retry_at_us: int) -> Circuit:
    return Circuit(state, circuit.failures, now_us, retry_at_us, circuit.changes + 1)


class CircuitBreakers:
    """The circuit breakers of one process. A circuit that never failed takes no memory.

    `lock` is held wherever a circuit can change; pass one if several threads use the object.
    """

    def __init__(self, limits: AdmissionLimits, lock: AbstractContextManager[Any] | None = None) -> None:
        self.limits, self._lock = limits, lock or nullcontext()
        self._circuits: dict[CircuitKey, Circuit] = {}

    def admit(self, key: CircuitKey, now_us: int) -> tuple[Circuit, bool, bool]:
        """Ask for permission to make one call. Returns (circuit, whether the call is admitted, whether the state
        changed).
        """
        if key not in self._circuits:
            return _FRESH, True, False
        with self._lock:
            before = self._circuits.get(key, _FRESH)
            after = admit_call(before, self.limits, now_us)
            if after is None:
                return before, False, False
            self._store(key, after)
            return after, True, after.changes != before.changes

    def open_until_us(self, key: CircuitKey, now_us: int) -> int:
        """Return when the circuit admits the next call (Unix microseconds), or 0 if it admits one now."""
        if key not in self._circuits:
            return 0
        with self._lock:
            circuit = self._circuits.get(key, _FRESH)
            return circuit.retry_at_us if admit_call(circuit, self.limits, now_us) is None else 0

    def report(self, key: CircuitKey, began_at: int, now_us: int, *, answer: bool) -> tuple[Circuit, bool]:
        """Record the outcome of a call; return (circuit, whether its state changed).

        `answer` says whether the call was answered. `began_at` is the circuit's `changes` when the call began.
        """
        if answer and key not in self._circuits:
            return _FRESH, False
        with self._lock:
            before = self._circuits.get(key, _FRESH)
            after = (
                after_reply(before, began_at, now_us)
                if answer
                else after_failure(before, self.limits, began_at, now_us)
            )
            self._store(key, after)
            return after, after.changes != before.changes

    def _store(self, key: CircuitKey, circuit: Circuit) -> None:
        # A closed circuit that has changed is kept too, to recognise reports of calls from before its last change.
        if circuit == _FRESH:
            self._circuits.pop(key, None)
        else:
            self._circuits[key] = circuit


_FRESH: Final = Circuit()


def circuit_document(key: CircuitKey, circuit: Circuit, process: str) -> CircuitDocument:
    """Build the stored document that shows operators the state of one circuit breaker in the process `process`."""
    return CircuitDocument(
        adapter_id=key[1],
        capability=key[2],
        state=circuit.state,
        failures=circuit.failures,
        since_us=circuit.since_us,
        retry_at_us=circuit.retry_at_us,
        process=process,
    )
