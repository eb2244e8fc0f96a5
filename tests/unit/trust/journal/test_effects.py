"""The effects of a run, and the rule of every end, over every short history that a run can have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, get_args

import pytest

from contextos.contracts.entries.kinds import account_of
from contextos.contracts.envelopes.verdicts import End
from contextos.contracts.journal import Logged
from contextos.trust.journal.effects import end_contradiction
from contextos.trust.journal.record import OUTCOME_OF_END

RUN = "run_00000000000000ab"
WRITES = {"bank.pay", "bank.note"}

EVENTS = (
    *("done", "withheld", "half", "replayed", "refused", "failed", "not sent"),
    *("lost", "happened", "did not happen", "other done", "read", "read failed"),
)


def entry(kind: str, key: str, body: Any) -> Logged:
    return Logged(1, kind, key, 0, "runtime", body, "")


def returned(step: str, tool: str, outcome: str = "returned", **more: Any) -> Logged:
    envelope = {"capability_id": tool, "tool_call_id": f"tool_{step}", "mutations": [], "metadata": {}}
    envelope |= {"citations": [], "risk_tags": []}
    body = {"outcome": outcome, "happened": False, "cost_cents": 0, "envelope": envelope}
    return entry("tool.returned", f"{step}/1", body | more)


def effects_of(log: Sequence[Logged]) -> list[dict[str, Any]]:
    return list(account_of(RUN, log).effects.values())


def undone_call(log: Sequence[Logged]) -> tuple[str, str] | None:
    return account_of(RUN, log).undone_call(WRITES)


def history(events: Sequence[str]) -> tuple[list[Logged], dict[str, bool | None], set[str], dict[str, bool]]:
    """The entries of a session with these calls; and what is known of them from the events alone: which calls had an
    effect (None: nobody knows), and of each tool whether the last call was done.
    """
    log, effects, last = list[Logged](), dict[str, bool | None](), dict[str, bool]()
    for number, event in enumerate(events):
        call, step = f"c{number}", f"{number}/s"
        tool = "bank.note" if event == "other done" else "bank.read" if event.startswith("read") else "bank.pay"
        log.append(entry("call.asked", call, {"tool": tool, "args": {}}))
        status, made = "refused", False
        if event in ("done", "withheld", "other done"):
            log.append(returned(step, tool, happened=True))
            status, made = "done", True
        elif event == "half":  # a journal of before: the tool answered with an error and an effect
            log.append(returned(step, tool, happened=True))
            status, made = "failed", True
        elif event == "replayed":
            made_by = {"run_id": "run_00000000000000cd", "tool_call_id": f"tool_{number}"}
            envelope = {"capability_id": tool, "mutations": [], "metadata": {"made_by": made_by}}
            log.append(entry("tool.refused", step, {"envelope": envelope}))
            status, made = "done", True
        elif event in ("failed", "read", "read failed"):
            log.append(returned(step, tool))
            status = "done" if event == "read" else "failed"
        elif event == "not sent":
            log.append(returned(step, tool, "not_sent"))
            status = "failed"
        elif event in ("lost", "happened", "did not happen"):
            log.append(returned(step, tool, "unknown"))
            if event != "lost":
                made = event == "happened"
                log.append(entry("effect.settled", step, {"happened": made, "mutations": []}))
            status = "done" if made else "failed"
        known: bool | None = None if event == "lost" else made
        if known is not False:
            effects[call] = known
        if event != "lost":
            log.append(entry("call.answered", call, {"status": status, "step": step, "failures": []}))
            if tool in WRITES:
                last.pop(tool, None)
                last[tool] = made
    return log, effects, set(last), last


@pytest.mark.parametrize("length", range(4))
def test_an_end_agrees_with_every_history_of_this_length(length: int) -> None:
    for events in product(EVENTS, repeat=length):
        log, effects, _, last = history(events)
        found = effects_of(log)
        assert [one["state"] for one in found] == [
            "unknown" if known is None else "happened" for known in effects.values()
        ], events
        undone = undone_call(log)
        assert (undone is None) == all(last.values()), events
        for end in get_args(End):
            why = end_contradiction(end, found, undone)
            agrees = {
                "denied": not effects,
                "approved": all(last.values()) and None not in effects.values(),
                "escalated": True,
            }[OUTCOME_OF_END[end]]
            assert (why is None) == agrees, (events, end, why)


def test_what_disagrees_names_what_was_done() -> None:
    log, *_ = history(["done", "refused"])
    why = end_contradiction("completed", effects_of(log), undone_call(log))
    assert why == "the last call of `bank.pay` was not done (refused), and `bank.pay` was done"
    assert end_contradiction("cancelled", effects_of(log), None) == "it ends as cancelled, and `bank.pay` had an effect"
    many = [{"capability_id": f"bank.t{number}", "state": "happened"} for number in range(5)]
    assert "`bank.t2` and 2 more" in str(end_contradiction("rejected", many, None))


def test_the_last_of_several_undone_calls_is_named() -> None:
    log, *_ = history(["refused", "other done", "read"])
    assert undone_call(log) == ("bank.pay", "refused")
    log, *_ = history(["refused", "done", "other done"])
    assert undone_call(log) is None
