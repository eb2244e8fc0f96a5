"""What every run keeps, entry by entry. The attacks over stores and exports are G65."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.audit.history import verify_history
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Draft, Entry, genesis, link
from contextos.errors import ChainBroken


def entry(kind: str, body: Any, *, key: str = "", by: str = "runtime", at_us: int = 1) -> Entry:
    draft = Draft(kind, key, at_us, by, canonical(body), bytes(16))
    return link("t", "run_1", 1, genesis("t", "run_1"), draft)


def recorded(kind: str, answer: Any, **more: Any) -> Entry:
    return entry(kind, {"request_digest": "sha256:0", "answer": answer}, **more)


CANCEL = {"by": "user_1", "reason": "a mistake"}


@pytest.mark.parametrize(
    "one",
    [
        recorded("run.cancel_requested", CANCEL, by="user_1", key="step/1"),
        recorded("run.cancel_requested", CANCEL, key="before/step/1"),
        recorded("run.resumed", {"cause": "recovery"}, by="0a1b"),
        recorded("session.finished", {"outcome": "approved", "reason": ""}, by="agent"),
        recorded("run.cancel_requested", CANCEL, by="user_2", key="step/1")._replace(body=None, salt=None),
    ],
)
def test_who_writes_a_kind_may_write_it(one: Entry) -> None:
    verify_history("run_1", [one])


@pytest.mark.parametrize(
    "one",
    [
        recorded("run.cancel_requested", CANCEL, by="user_2", key="step/1"),
        recorded("run.cancel_requested", CANCEL, by="user_1", key="before/step/1"),
        recorded("run.resumed", {"cause": "recovery"}, by=""),
        recorded("session.finished", {"outcome": "approved", "reason": ""}),
        recorded("tool.retry_due", {"expired": True}, by="agent"),
        recorded("tool.retry_due", {"expired": False}),
        entry("tool.retry_due", {"expired": True}),
        entry("index.thing", {}),
    ],
)
def test_nobody_else_does_and_no_body_is_of_another_form(one: Entry) -> None:
    with pytest.raises(ChainBroken, match="`run_1` entry 1: "):
        verify_history("run_1", [one])


def test_no_run_is_no_fault_and_a_time_that_goes_back_is_one() -> None:
    verify_history("run_1", [])
    due = [recorded("tool.retry_due", {"expired": True}, at_us=at_us) for at_us in (2, 2, 1)]
    with pytest.raises(ChainBroken, match="is earlier than the entry before it"):
        verify_history("run_1", due)
