"""The progress of a delivery: its key follows the attempt, and an attempt of another process has no token."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.delivery import TOKEN_LOST, Exchanged, obtain_credentials
from contextos.contracts.entries.account import Usage
from contextos.contracts.envelopes.tool import Authentication
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.calls import ToolCall


def called(key: str, capability: Any, **more: Any) -> ToolCall:
    step: Any = None
    call = ToolCall(key, step, {}, {}, ())
    for name, value in {"capability": capability, **more}.items():
        setattr(call, name, value)
    return call


class Recorded:
    """A journal that has the answers already, or asks."""

    now_us = 0

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.answer, self.kinds = answer, list[tuple[str, str]]()

    async def record_all(self, group: Any, *, keeps: bool) -> list[Any]:
        assert not keeps
        self.kinds += [(one.kind, one.key) for one in group]
        return [self.answer or await one.call() for one in group]


def exchanging() -> ToolCall:
    auth = Authentication(mode="exchange", audience="api")
    definition = SimpleNamespace(kind="read", auth=auth, required_scopes=("read",), timeout_s=5)
    capability = SimpleNamespace(definition=definition, adapter=SimpleNamespace(adapter_id="adp"))
    call = called("0/read", capability, attempt=1, token="of the attempt before")
    call.envelope = SimpleNamespace(tool_call_id="tool_1")  # type: ignore[assignment]
    return call


async def issue(_capability: Any, _call_id: str, timeout_ms: int) -> Exchanged:
    assert timeout_ms == 3_000
    return Exchanged({"credential": {}}, "secret-token")


def test_only_the_process_that_exchanged_has_the_token() -> None:
    budget = SimpleNamespace(wall_clock_ms=60_000)
    scope: Any = SimpleNamespace(run=SimpleNamespace(run_budget=budget), within_session=lambda _: 3_000_000)
    ports: Any = SimpleNamespace(adapters={}, exchange=issue, spent=lambda: Usage(0, 0, 0, 0))
    mine, taken_over, refused = exchanging(), exchanging(), exchanging()
    live, tape = Recorded(None), Recorded({"credential": {}})
    asyncio.run(obtain_credentials(live, scope, ports, [mine]))  # type: ignore[arg-type]
    asyncio.run(obtain_credentials(tape, scope, ports, [taken_over]))  # type: ignore[arg-type]
    said = Recorded({"failure": {"code": "identity_refused", "detail": "no"}})
    asyncio.run(obtain_credentials(said, scope, ports, [refused]))  # type: ignore[arg-type]
    assert (mine.token, mine.lacking) == ("secret-token", None)
    assert (taken_over.token, taken_over.lacking) == ("", TOKEN_LOST)
    assert refused.lacking is not None
    assert (refused.token, refused.lacking.code) == ("", "identity_refused")
    assert live.kinds == [("credential.exchanged", "0/read/1")]
    assert "secret-token" not in repr(mine)


@pytest.mark.parametrize(
    ("code", "mode", "claimed", "denied"),
    [
        ("identity_refused", "send", None, True),
        ("tool_failed", "send", None, False),
        ("identity_refused", "reconcile", None, False),
        ("identity_refused", "send", object(), True),
    ],
    ids=["a refusal", "an outage", "a look-up", "a write that was dispatched before, and not sent"],
)
def test_only_a_refusal_before_which_nothing_was_sent_ends_a_call_undispatched(
    code: Any, mode: str, claimed: Any, denied: bool
) -> None:
    one = called("0/pay", SimpleNamespace(definition=SimpleNamespace(kind="write")))
    one.mode, one.claimed, one.lacking = mode, claimed, Failure(code=code, detail="no")
    assert (one.denied is not None) is denied
