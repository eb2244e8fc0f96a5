"""The run table under random histories: what is not in it is refused and changes nothing; every run can end.

The machine writes through the real `RunJournal`, so what is proved of the table is proved of what keeps it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import genesis
from contextos.errors import ReplayMismatch
from contextos.runtime.state_machine import ENDS, START, TABLE, event_of, events, step, transition
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.live_driver import LiveDriver
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores
from tests.world import TENANT, ManualClock, SystemEntropy, run

EVENTS = sorted({name for row in TABLE.values() for name in row})
VERDICTS = {"plan.verified": "verdict", "run.ended": "end"}
STRANGE = [("plan.verified", "maybe"), ("run.ended", "abandoned"), ("run.ended", "waiting"), ("plan.verified", "")]
RUN = "run_0123456789abcdef"


FOLDED: dict[str, Any] = {
    "budget_report": {"tokens_used_at_compile": 0},
    "context_ledger": {"memory_refs": []},
    "cost_cents": 0,
    "envelope": {"citations": [], "risk_tags": [], "metadata": {}, "mutations": []}
    | {"capability_id": "bank.pay", "tool_call_id": "tool_1"},
    "evidence_ref": "",
    "happened": False,
    "items": [],
    "mutations": [],
    "operation": "judge.plan",
    "outcome": "answered",
    "approvals": [],
    "decision_key": "",
    "policy_decision_id": "",
    "policy_decisions": [],
    "record_id": "",
    "subject_ids": [],
    "cost_units": 0,
    "reserved_cents": 0,
    "reserved_units": 0,
    "rules": "routing.x@1.0.0",
    "satisfied": {},
}
"""What the account of a run reads of the bodies of all kinds."""


def body_of(kind: str, verdict: str) -> dict[str, Any]:
    return {VERDICTS[kind]: verdict} if kind in VERDICTS else FOLDED


def reachable(start: str) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        for after in TABLE[waiting.pop()].values():
            if after not in found:
                found.add(after)
                waiting.append(after)
    return found


@pytest.mark.requirement("R-TABLE")
def test_every_state_is_reached_and_every_live_one_reaches_every_end() -> None:
    assert reachable(START) == set(TABLE)
    for state in TABLE.keys() - ENDS:
        assert reachable(state) >= ENDS, f"a run in `{state}` cannot end in every way"


@pytest.mark.requirement("R-TABLE")
def test_an_end_is_final_unless_an_operator_reopens_what_escalated() -> None:
    left = {state: row for state, row in TABLE.items() if state in ENDS and row}
    assert left == {end: {"run.reopened": "resolved"} for end in ("escalated", "exhausted")}


@pytest.mark.requirement("R-TABLE")
def test_every_kind_of_entry_is_an_event_and_every_event_is_a_kind() -> None:
    assert {name.split(":")[0] for name in EVENTS} == set(KINDS)
    assert {name for kind in KINDS for name in events(kind)} == set(EVENTS)
    assert {after for row in TABLE.values() for after in row.values()} <= set(TABLE)


@pytest.mark.requirement("R-TABLE")
def test_nothing_is_sent_before_a_plan_was_verified_and_nothing_after_the_end() -> None:
    sends = {state for state, row in TABLE.items() if "tool.dispatching" in row}
    assert sends == {"verifying", "executing", "waiting"}
    before = reachable_without(START, "plan.verified:ok")
    assert not before & sends


@pytest.mark.requirement("R-TABLE")
def test_a_run_ends_only_after_its_record() -> None:
    assert {state for state, row in TABLE.items() for name in row if name.startswith("run.ended")} == {"scoring"}


def reachable_without(start: str, missing: str) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        for name, after in TABLE[waiting.pop()].items():
            if name != missing and after not in found:
                found.add(after)
                waiting.append(after)
    return found


class RunTable(RuleBasedStateMachine):
    """Random entries, most of them out of place, against the table and the journal that keeps it."""

    def __init__(self) -> None:
        super().__init__()
        clock = ManualClock()
        self.stores = MemoryStores(clock=clock)
        store = self.stores.tenant(TENANT)
        live = LiveDriver(store, clock, SystemEntropy(), KeyRing.from_seed(b"k" * 32), "owner", 1_000_000)
        self.journal = RunJournal(TENANT, RUN, (), transition, START, live)
        self.state, self.length = START, 0

    def happens(self, kind: str, verdict: str) -> None:
        body = body_of(kind, verdict)
        expected = TABLE[self.state].get(event_of(kind, body))
        before = (self.journal.state, self.journal.head, self.journal.now_us, len(self.journal.log()))
        try:
            self.write(kind, body)
        except ReplayMismatch:
            assert expected is None, f"`{kind}` in `{self.state}` was refused and the table has it"
            after = (self.journal.state, self.journal.head, self.journal.now_us, len(self.journal.log()))
            assert after == before, "what was refused changed something"
        else:
            assert expected is not None, f"`{kind}` in `{self.state}` was taken and the table does not have it"
            self.state, self.length = expected, self.length + 1
        assert step(self.state, "no.such.event") is None

    def write(self, kind: str, body: dict[str, Any]) -> None:
        async def answer() -> dict[str, Any]:
            return body

        if KINDS[kind].recorded:
            run(self.journal.record(kind, "", {}, answer))
        else:
            self.journal.derive(kind, "", body)

    @rule(name=st.sampled_from(EVENTS))
    def anything(self, name: str) -> None:
        kind, _, verdict = name.partition(":")
        self.happens(kind, verdict)

    @rule(data=st.data())
    def what_the_table_has(self, data: st.DataObject) -> None:
        if TABLE[self.state]:
            kind, _, verdict = data.draw(st.sampled_from(sorted(TABLE[self.state]))).partition(":")
            self.happens(kind, verdict)

    @rule(strange=st.sampled_from(STRANGE))
    def a_verdict_that_is_none(self, strange: tuple[str, str]) -> None:
        self.happens(*strange)

    @rule()
    def made_durable(self) -> None:
        run(self.journal.commit())
        entries = run(self.stores.tenant(TENANT).read(RUN))
        assert len(entries) == self.length
        verify_chain(TENANT, RUN, entries)

    @invariant()
    def journal_and_model_agree(self) -> None:
        assert (self.journal.state, len(self.journal.log())) == (self.state, self.length)

    def teardown(self) -> None:
        """The tape of it all, read again, comes to the same state."""
        run(self.journal.commit())
        entries = run(self.stores.tenant(TENANT).read(RUN))
        tape = RunJournal(TENANT, RUN, entries, transition, START, None)
        for entry in self.journal.log():
            if entry.kind == "run.resumed":
                continue
            if KINDS[entry.kind].recorded:
                run(tape.record(entry.kind, entry.key, {}, self.unreachable))
            else:
                tape.derive(entry.kind, entry.key, entry.body)
        assert not tape.on_tape
        # A `run.resumed` is read together with the entry after it, so the last ones are not read.
        read = next((entry for entry in reversed(entries) if entry.kind != "run.resumed"), None)
        assert (tape.state, tape.head) == (self.journal.state, read.hash if read else genesis(TENANT, RUN))

    async def unreachable(self) -> None:
        raise AssertionError("a tape asks nobody")


@pytest.mark.requirement("R-TABLE")
class TestRunTable(RunTable.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
