"""The progress of one call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.contracts.ports.calls import ToolCall


def call(kind: str = "write", strategy: str = "keyed", **more: Any) -> ToolCall:
    step: Any = None
    made = ToolCall("0/pay", step, {}, {}, ())
    rule = SimpleNamespace(strategy=strategy)
    made.capability = SimpleNamespace(definition=SimpleNamespace(kind=kind, idempotency=rule))  # type: ignore[assignment]
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_each_attempt_has_a_key_of_its_own() -> None:
    one = call()
    one.attempt = 1
    first = one.attempt_key
    one.attempt = 2
    assert (first, one.attempt_key) == ("0/pay/1", "0/pay/2")


@pytest.mark.parametrize(("kind", "writes"), [("write", True), ("read", False)])
def test_only_a_write_capability_writes(kind: str, writes: bool) -> None:
    assert call(kind).writes is writes


def test_a_call_that_runs_on_and_one_that_can_only_be_looked_up_are_not_sent_again() -> None:
    assert call(mode="reconcile").can_send
    assert not call(mode="reconcile", strategy="lookup").can_send
    assert not call(running="op_1").can_send
