"""The journal of one run: an answer is written before it is used, and time is that of the entries."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.journal import Entry
from contextos.errors import MalformedJson, ReplayMismatch
from contextos.runtime.state_machine import START, transition
from contextos.store.memory.stores import MemoryStores
from contextos.trust.journal.ledger import LiveDriver, RunJournal
from contextos.trust.seal import KeyRing
from tests.world import TENANT, ManualClock, SystemEntropy, run

RUN = "run_00000000000000aa"
ANSWER = {"request": {"amount": 4200}, "fingerprint": "f"}


class Kept:
    """A journal over a store of its own, with a clock that goes where the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStores(clock=self.clock).tenant(TENANT)
        self.live = LiveDriver(
            self.store, self.clock, SystemEntropy(), KeyRing.from_seed(b"k" * 32), "owner", 1_000_000
        )
        self.journal = RunJournal(TENANT, RUN, (), transition, START, self.live)

    def entries(self) -> list[Entry]:
        run(self.journal.commit())
        return list(run(self.store.read(RUN)))


async def nobody() -> Any:
    raise AssertionError("a tape asks nobody")


@pytest.mark.requirement("J-RECORD-THEN-USE")
def test_an_answer_is_used_as_it_was_written_whatever_the_outside_does_with_it_later() -> None:
    kept, given = Kept(), {"request": {"amount": 4200}, "fingerprint": "f"}

    async def outside() -> Any:
        return given

    used = run(kept.journal.record("run.received", "", {"q": 1}, outside))
    given["request"]["amount"] = 9900  # type: ignore[index]
    assert used == ANSWER
    entries = kept.entries()
    tape = RunJournal(TENANT, RUN, entries, transition, START, None)
    assert run(tape.record("run.received", "", {"q": 1}, nobody)) == ANSWER


@pytest.mark.requirement("J-RECORD-THEN-USE")
def test_an_answer_that_cannot_be_written_is_not_used() -> None:
    kept = Kept()

    async def outside() -> Any:
        return {"request": float("nan")}

    with pytest.raises(MalformedJson):
        run(kept.journal.record("run.received", "", {}, outside))
    assert (kept.journal.state, kept.entries()) == (START, [])


@pytest.mark.requirement("J-RECORD-THEN-USE")
def test_a_tape_answers_only_the_question_that_was_asked() -> None:
    kept = Kept()

    async def outside() -> Any:
        return ANSWER

    run(kept.journal.record("run.received", "", {"q": 1}, outside))
    entries = kept.entries()
    for kind, key, question in (
        ("run.received", "", {"q": 2}),
        ("run.received", "other", {"q": 1}),
        ("run.pinned", "", {"q": 1}),
    ):
        tape = RunJournal(TENANT, RUN, entries, transition, START, None)
        with pytest.raises(ReplayMismatch) as mismatch:
            run(tape.record(kind, key, question, nobody))
        assert mismatch.value.seq == 1
    beyond = RunJournal(TENANT, RUN, (), transition, START, None)
    with pytest.raises(ReplayMismatch, match="where the tape ends"):
        run(beyond.record("run.received", "", {"q": 1}, nobody))


@pytest.mark.requirement("J-TIME")
def test_time_never_runs_backwards_within_a_run_and_is_that_of_its_entries() -> None:
    kept, told = Kept(), []

    async def outside() -> Any:
        return ANSWER

    run(kept.journal.record("run.received", "", {}, outside))
    first_us = kept.journal.now_us
    for jump_us in (-3_600_000_000, 1_800_000_000, 1_800_000_000, 5_000_000):
        kept.clock.at_us += jump_us
        run(kept.journal.record("identity.resolved", "", {}, outside))
        told.append(kept.journal.now_us)
    assert told[:2] == [first_us, first_us], "an hour back, and still half an hour back"
    assert first_us < told[2] < told[3] == kept.clock.at_us
    assert [entry.at_us for entry in kept.entries()] == [first_us, *told]
