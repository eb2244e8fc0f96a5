"""The wire form of a plan request is what is recorded."""

from __future__ import annotations

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.ports.planning import PlanRequest


def test_the_wire_form_has_every_field_as_json() -> None:
    wire = PlanRequest("run_1", 2, {"a": 1}, ("t@1",), ("e",)).to_json()
    assert canonical(wire) == (
        b'{"compiled":{"a":1},"evidence":["e"],"revision":2,"run_id":"run_1","templates":["t@1"]}'
    )
