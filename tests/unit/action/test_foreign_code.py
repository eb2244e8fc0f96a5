"""What an adapter raises or answers becomes what its port promises; attacks: tests/attacks/test_d22_*.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from contextos.action.foreign_code import ForeignCode, describe_adapter
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from contextos.errors import CircuitOpen, LostReply, Overloaded, Unavailable
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from tests.planted import planted

READ = CallContext("acme", "run_1", "tool_1", None, 0, 1_000)
WRITE = CallContext("acme", "run_1", "tool_1", "ik_0123456789abcdef", 0, 1_000)


def heard(context: CallContext, result: Any, *, lookup: bool = False) -> tuple[Any, list[Mapping[str, str]]]:
    """What the gateway hears of a call that returns or raises `result`, and the reported faults."""
    reports: list[Mapping[str, str]] = []

    async def call() -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    async def act() -> Any:
        foreign = ForeignCode(AsyncioConcurrency(), lambda _fault, fields: reports.append(fields))
        reach = foreign.lookup if lookup else foreign.call
        try:
            return await reach("adp", "pay", context, call)
        except (Unavailable, LostReply) as error:
            return type(error)

    return asyncio.run(act()), reports


@pytest.mark.parametrize(("context", "error"), [(READ, Unavailable), (WRITE, LostReply)])
@pytest.mark.parametrize("fault", [SystemExit(0), asyncio.CancelledError(), OSError("secret")])
def test_a_fault_of_a_write_may_have_happened_and_one_of_a_read_did_not(
    context: CallContext, error: type, fault: BaseException
) -> None:
    result, reports = heard(context, fault)
    assert result is error
    assert reports == [{"tenant": "acme", "run": "run_1", "tool_call": "tool_1", "capability": "adp.pay"}]


@pytest.mark.parametrize(
    "fault", [KeyError("secret"), ValueError("secret"), TypeError(), AttributeError(), ZeroDivisionError(), NameError()]
)
def test_a_read_whose_code_is_wrong_has_a_defect_and_no_outage(fault: Exception) -> None:
    """H34. It is reported with its frames, and a write of such a tool may have happened as before."""
    result, reports = heard(READ, fault)
    assert result.error.code == "tool_defect"
    assert result.error.message == f"`adp.pay` has a defect: it raised `{type(fault).__name__}`"
    assert not result.error.retryable
    assert len(reports) == 1
    assert heard(WRITE, fault)[0] is LostReply
    assert heard(READ, fault, lookup=True)[0] is LostReply


@pytest.mark.parametrize("fault", [json.JSONDecodeError("no", "", 0), UnicodeDecodeError("utf-8", b"", 0, 1, "no")])
def test_an_answer_from_outside_that_cannot_be_read_is_an_outage(fault: Exception) -> None:
    assert heard(READ, fault)[0] is Unavailable


@pytest.mark.parametrize("promise", [Unavailable("adp", "away"), Overloaded("adp", "full"), LostReply("lost")])
def test_what_the_port_promises_passes_and_is_no_fault(promise: Exception) -> None:
    assert heard(WRITE, promise) == (type(promise), [])


@pytest.mark.parametrize("promise", [Unavailable, Overloaded, lambda *said: LostReply(said[1])])
def test_what_an_adapter_says_of_an_outage_has_no_secret_in_it(promise: Any) -> None:
    secret = planted()["password in a url"]
    fault = promise("adp", f"no answer from {secret.text}")
    assert heard(WRITE, fault)[0] is type(fault)
    assert secret.secret not in str(fault) + repr(fault)
    assert "no answer from [redacted:secret]" in str(fault)


def test_what_an_adapter_says_can_always_be_written() -> None:
    fault = Unavailable("adp", "no answer from \ud800")
    assert heard(WRITE, fault)[0] is Unavailable
    assert "no answer from ?" in str(fault)


def test_an_adapter_cannot_open_a_circuit_or_claim_that_what_is_looked_up_did_not_happen() -> None:
    assert heard(WRITE, CircuitOpen("adp.pay", 1, 1))[0] is Unavailable
    assert heard(WRITE, Unavailable("adp", "away"), lookup=True)[0] is LostReply


def test_a_value_that_is_no_reply_is_a_fault_but_no_record_is_an_answer() -> None:
    assert heard(WRITE, {"ok": True})[0] is LostReply
    assert heard(WRITE, None)[0] is LostReply
    assert heard(WRITE, None, lookup=True)[0] is None
    reply = AdapterReply(output={"n": 1})
    heard_of = heard(WRITE, reply)[0]
    # What the adapter can still change is not what is used.
    assert heard_of.output == {"n": 1}
    assert heard_of is not reply


def test_an_adapter_without_a_definition_is_unavailable() -> None:
    class Mute:
        def describe(self) -> Any:
            return None

    with pytest.raises(Unavailable, match="describes itself as a `NoneType`"):
        describe_adapter("adp", Mute())  # type: ignore[arg-type]
