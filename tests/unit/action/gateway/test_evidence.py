"""Evidence counts for a call only if it is about the call's arguments, or the pack says what else is compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.evidence import evidence_about
from contextos.contracts.envelopes.pack import Permission
from contextos.contracts.scope import Capability, Fact


def counted(args: dict[str, Any], *abouts: dict[str, Any], **stated: Any) -> list[Any]:
    """The values of the evidence `check` that count for a call with `args`; the value is its place in `abouts`."""
    permission = Permission.model_validate(
        {"permission_id": "p", "adapter_id": "a", "capability": "pay", "roles": ["r"], "evidence_args": stated}
    )
    facts = tuple(Fact("check", f"tool:a.check:{n}", "a.check", n, "d", 0, about) for n, about in enumerate(abouts))
    unread: Any = None
    capability = Capability("a.pay", unread, unread, "", (permission,))
    call: Any = SimpleNamespace(step=SimpleNamespace(tool="a.pay"), args=args, known=facts)
    return [fact.value for fact in evidence_about(capability, call).values()]


@pytest.mark.parametrize(
    ("about", "counts"),
    [
        ({}, True),
        ({"order": "1"}, True),
        ({"order": "1", "amount": 5}, True),
        ({"order": "2"}, False),
        ({"order": 1}, False),
        ({"order": "1", "amount": 5, "customer": "c"}, False),
        ({"order": None}, False),
    ],
)
def test_every_argument_that_the_evidence_is_about_is_the_same(about: dict[str, Any], counts: bool) -> None:
    assert counted({"order": "1", "amount": 5}, about) == ([0] if counts else [])


def test_of_several_the_newest_that_is_about_the_call_counts() -> None:
    assert counted({"order": "1"}, {"order": "1"}, {"order": "1"}, {"order": "2"}) == [1]


def test_the_pack_says_which_arguments_are_compared_and_under_which_name() -> None:
    assert counted({"id": "1"}, {"order": "1", "day": 3}, check={"order": "id"}) == [0]
    assert counted({"id": "2"}, {"order": "1", "day": 3}, check={"order": "id"}) == []
    assert counted({"id": "1"}, {"day": 3}, check={"order": "id"}) == [], "what is absent is not the same"
    assert counted({"id": "2"}, {"order": "1"}, check={}) == [0]
