"""The circuit breaker: what failed too often just now is not called for a while, so that it and its callers recover.

    closed --(failures in a row)--> open --(after the cool-down)--> half_open --answered--> closed
                                       ^                                  |
                                       +--------------failed--------------+

There is one circuit for each tenant, adapter and capability. A failure is one of transport: `Unavailable`, `LostReply`,
a timeout; a business error is an answer. Half open, one call goes through. What a breaker lets through or not is
decided inside a recorded answer, so a replay needs none; it never says anything about a call that was made before.
Source: Reference Architecture, "Failure semantics"; issue W2, "Backpressure".
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
    """Where a circuit stands. `changes` counts its changes of state: what a call that began before one tells is late.

    `retry_at_us` is 0 while it is closed; half open, it is when the next probe goes if this one is never heard of.
    """

    state: CircuitState = "closed"
    failures: int = 0
    since_us: int = 0
    retry_at_us: int = 0
    changes: int = 0


def admit_call(circuit: Circuit, limits: AdmissionLimits, now_us: int) -> Circuit | None:
    """The circuit once a call is let through; None while it is not.

    >>> opened = Circuit("open", retry_at_us=10)
    >>> admit_call(opened, AdmissionLimits(), 9)
    >>> admit_call(opened, AdmissionLimits(), 10).state
    'half_open'
    """
    if circuit.state == "closed":
        return circuit
    cool_down_us = limits.breaker_cool_down_ms * 1_000
    # A clock that was put back must not keep it shut for longer than it takes to cool down.
    if 0 < circuit.retry_at_us - now_us <= cool_down_us:
        return None
    return _moved(circuit, "half_open", now_us, now_us + cool_down_us)


def after_reply(circuit: Circuit, began_at: int, now_us: int) -> Circuit:
    """The circuit after an answer to a call that was let through after `began_at` changes."""
    if began_at != circuit.changes:
        return circuit
    if circuit.state == "closed":
        return replace(circuit, failures=0)
    return replace(_moved(circuit, "closed", now_us, 0), failures=0)


def after_failure(circuit: Circuit, limits: AdmissionLimits, began_at: int, now_us: int) -> Circuit:
    """The circuit after a failure of transport of a call that was let through after `began_at` changes."""
    if began_at != circuit.changes:
        return circuit
    counted = replace(circuit, failures=circuit.failures + 1)
    if circuit.state == "closed" and counted.failures < limits.breaker_failures_in_a_row:
        return counted
    return _moved(counted, "open", now_us, now_us + limits.breaker_cool_down_ms * 1_000)


def _moved(circuit: Circuit, state: CircuitState, now_us: int, retry_at_us: int) -> Circuit:
    return Circuit(state, circuit.failures, now_us, retry_at_us, circuit.changes + 1)


class CircuitBreakers:
    """The circuits of one process; what never failed takes no room.

    `lock` is held for each step where several threads use one object.
    """

    def __init__(self, limits: AdmissionLimits, lock: AbstractContextManager[Any] | None = None) -> None:
        self.limits, self._lock = limits, lock or nullcontext()
        self._circuits: dict[CircuitKey, Circuit] = {}

    def ask(self, place: CircuitKey, now_us: int) -> tuple[Circuit, bool, bool]:
        """(the circuit, whether a call goes through, whether that changed its state)."""
        with self._lock:
            before = self._circuits.get(place, _FRESH)
            after = admit_call(before, self.limits, now_us)
            if after is None:
                return before, False, False
            self._keep(place, after)
            return after, True, after.changes != before.changes

    def shut_until_us(self, place: CircuitKey, now_us: int) -> int:
        """When the next call goes through; 0 if one does now."""
        with self._lock:
            circuit = self._circuits.get(place, _FRESH)
            return circuit.retry_at_us if admit_call(circuit, self.limits, now_us) is None else 0

    def tell(self, place: CircuitKey, began_at: int, now_us: int, *, answer: bool) -> tuple[Circuit, bool]:
        """What came of a call: (the circuit, whether that changed its state)."""
        with self._lock:
            before = self._circuits.get(place, _FRESH)
            after = (
                after_reply(before, began_at, now_us)
                if answer
                else after_failure(before, self.limits, began_at, now_us)
            )
            self._keep(place, after)
            return after, after.changes != before.changes

    def _keep(self, place: CircuitKey, circuit: Circuit) -> None:
        # A closed one that has changed is kept too: what began before its last change must still be known as late.
        if circuit == _FRESH:
            self._circuits.pop(place, None)
        else:
            self._circuits[place] = circuit


_FRESH: Final = Circuit()


def circuit_document(place: CircuitKey, circuit: Circuit, process: str) -> CircuitDocument:
    """A circuit as the tenant's store keeps it; `process` is where it stands so."""
    return CircuitDocument(
        adapter_id=place[1],
        capability=place[2],
        state=circuit.state,
        failures=circuit.failures,
        since_us=circuit.since_us,
        retry_at_us=circuit.retry_at_us,
        process=process,
    )
