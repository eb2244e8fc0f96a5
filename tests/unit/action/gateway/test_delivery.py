"""The progress of a delivery: its key follows the attempt."""

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.delivery import Delivery


def delivery(kind: str) -> Delivery:
    call: Any = SimpleNamespace(key="0/pay", capability=SimpleNamespace(definition=SimpleNamespace(kind=kind)))
    return Delivery(call, "send", 1, 1)


def test_each_attempt_has_a_key_of_its_own() -> None:
    one = delivery("write")
    one.attempt = 1
    first = one.key
    one.attempt = 2
    assert (first, one.key) == ("0/pay/1", "0/pay/2")


@pytest.mark.parametrize(("kind", "writes"), [("write", True), ("read", False)])
def test_only_a_write_capability_writes(kind: str, writes: bool) -> None:
    assert delivery(kind).writes is writes
