"""A group of reads of which several are refused: the results end with the first refusal."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway import guards
from contextos.action.gateway.tool_gateway import Gateway
from contextos.contracts.envelopes.verdicts import Failure

DENIED = Failure(code="identity_refused", detail="no")


def group(monkeypatch: pytest.MonkeyPatch, sent: list[Any]) -> list[Any]:
    """The results of three reads: the guards pass two and refuse the third, and `sent` is what became of the two."""
    no: Any = None
    checked = iter([None, None, "refused by a guard"])

    async def check(_self: Gateway, _call: Any) -> Any:
        return next(checked)

    async def deliver_all(_calls: Any) -> list[Any]:
        return sent

    monkeypatch.setattr(Gateway, "_check", check)
    monkeypatch.setattr(Gateway, "_dispatcher", lambda _self: SimpleNamespace(deliver_all=deliver_all))
    monkeypatch.setattr(Gateway, "_result", lambda _self, _call, result: result)
    monkeypatch.setattr(guards, "session_end", lambda _context: None)
    context: Any = SimpleNamespace(ports=SimpleNamespace(barrier=SimpleNamespace(forget=lambda: None)))
    return asyncio.run(Gateway(context).call_all([no, no, no]))


@pytest.mark.parametrize(
    ("sent", "results"),
    [
        (["read", "read"], ["read", "read", "refused by a guard"]),
        (["read", DENIED], ["read", DENIED]),
        ([DENIED], [DENIED]),
    ],
    ids=["none by an issuer", "the last by an issuer", "the first by an issuer"],
)
def test_the_first_refusal_of_a_group_is_its_last_result(
    sent: list[Any], results: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert group(monkeypatch, sent) == results
