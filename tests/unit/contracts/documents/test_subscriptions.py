"""The stored state of a subscription is read as it was written, and refused otherwise."""

from __future__ import annotations

import pytest

from contextos.contracts.documents.subscriptions import SUBSCRIPTIONS, HeldRun, Subscription
from contextos.errors import Integrity


def test_a_subscription_is_read_as_it_was_written() -> None:
    held = (HeldRun("run_1", 4, 2, 1_000_000),)
    body = Subscription(("run.ended",), "7." + "a" * 32, "owner", 60, held)
    assert SUBSCRIPTIONS.decoded("inbox", SUBSCRIPTIONS.encode(body)) == body


@pytest.mark.parametrize("raw", [b"{}", b"[]", b'{"events":[],"cursor":1,"owner":"","until_us":0}', b"no"])
def test_another_form_is_refused_by_name(raw: bytes) -> None:
    with pytest.raises(Integrity, match="subscriptions/inbox"):
        SUBSCRIPTIONS.decoded("inbox", raw)
