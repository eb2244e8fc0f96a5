"""The journal of one run: an answer is written before it is used, and time is that of the entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.journal import VOID_ANSWER, Draft, Entry, genesis, link
from contextos.contracts.ports.seams import RecordRequest
from contextos.errors import ChainBroken, MalformedJson, ReplayMismatch, Unavailable
from contextos.runtime.state_machine import START, transition
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.live_driver import LiveDriver
from contextos.trust.seal import KeyRing
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos_sim.memory.stores import MemoryStores
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
    kept, times = Kept(), []

    async def outside() -> Any:
        return ANSWER

    run(kept.journal.record("run.received", "", {}, outside))
    first_us = kept.journal.now_us
    for jump_us in (-3_600_000_000, 1_800_000_000, 1_800_000_000, 5_000_000):
        kept.clock.at_us += jump_us
        run(kept.journal.record("identity.resolved", "", {}, outside))
        times.append(kept.journal.now_us)
    assert times[:2] == [first_us, first_us], "an hour back, and still half an hour back"
    assert first_us < times[2] < times[3] == kept.clock.at_us
    assert [entry.at_us for entry in kept.entries()] == [first_us, *times]


def test_a_drive_whose_clock_is_behind_by_another_time_says_so_before_its_next_entry() -> None:
    kept = Kept()

    async def outside() -> Any:
        return ANSWER

    run(kept.journal.record("run.received", "", {}, outside))
    kept.entries()
    for behind_us in (5_000_000, 5_000_000, 0):
        kept.journal.follows(0, 0, behind_us)
        run(kept.journal.record("identity.resolved", "", {}, outside))
        kept.entries()
    kinds = [
        "run.received",
        "run.resumed",
        "identity.resolved",
        "identity.resolved",
        "run.resumed",
        "identity.resolved",
    ]
    assert [entry.kind for entry in kept.entries()] == kinds


KEYS = ("0/a/1", "0/b/1", "0/c/1")


def executing(_state: str, _kind: str, _body: Any) -> str:
    """A run table that allows everything: what is tried here is the tape alone."""
    return "executing"


def group(calls: dict[str, Any], keys: Sequence[str] = KEYS) -> list[RecordRequest]:
    def answer(key: str) -> Any:
        async def call() -> Any:
            value = calls[key]
            if isinstance(value, Exception):
                raise value
            return value

        return call

    return [RecordRequest("history.read", key, {"asks": key}, answer(key)) for key in keys]


def answers(*keys: str) -> dict[str, Any]:
    return {key: {"says": key} for key in keys}


class Group(Kept):
    """A journal whose calls answer in the order of `order`."""

    def __init__(self, order: Sequence[int] = (0, 1, 2), tape: Sequence[Entry] = ()) -> None:
        super().__init__()
        self.order = order
        self.live.concurrency = self
        self.journal = RunJournal(TENANT, RUN, tape, executing, "executing", self.live)

    async def gather(self, calls: Sequence[Any]) -> None:
        for number in [number for number in self.order if number < len(calls)]:
            await calls[number]()

    async def within(self, _timeout_ms: int, call: Any) -> Any:
        return await call()


def tape_of(order: Sequence[int] = (0, 1, 2)) -> list[Entry]:
    kept = Group(order)
    assert run(kept.journal.record_all(group(answers(*KEYS)))) == list(answers(*KEYS).values())
    return kept.entries()


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_group_is_recorded_as_it_arrives_and_found_in_any_order(order: tuple[int, ...]) -> None:
    entries = tape_of(order)
    assert [entry.key for entry in entries] == [KEYS[number] for number in order]
    tape = RunJournal(TENANT, RUN, entries, executing, "executing", None)
    assert run(tape.record_all(group({}))) == list(answers(*KEYS).values())
    assert (tape.head, tape.now_us, tape.on_tape) == (entries[-1].hash, entries[-1].at_us, False)


@pytest.mark.parametrize("known", range(3))
def test_a_tape_that_ends_within_a_group_is_continued_with_the_missing_calls(known: int) -> None:
    entries = tape_of((2, 0, 1))[:known]
    missing = [key for key in KEYS if key not in {entry.key for entry in entries}]
    kept = Group((2, 1, 0), entries)
    assert run(kept.journal.record_all(group(answers(*missing)))) == list(answers(*KEYS).values())
    whole = list(kept.journal.entries)
    assert [entry.kind for entry in whole].count("run.resumed") == (1 if known else 0)
    replayed = RunJournal(TENANT, RUN, whole, executing, "executing", None)
    assert run(replayed.record_all(group({}))) == list(answers(*KEYS).values())
    assert replayed.head == kept.journal.head
    with pytest.raises(ReplayMismatch, match="where the tape ends"):
        run(RunJournal(TENANT, RUN, entries, executing, "executing", None).record_all(group({})))


def test_an_error_of_one_call_loses_no_answer_of_the_others() -> None:
    kept = Group((0, 1, 2))
    kept.live.concurrency = AsyncioConcurrency()
    with pytest.raises(Unavailable, match="away"):
        run(kept.journal.record_all(group({**answers(*KEYS), KEYS[1]: Unavailable("shop", "away")})))
    durable = run(kept.store.read(RUN))
    assert [entry.key for entry in durable] == [KEYS[0], KEYS[2]]


def test_a_group_that_is_cancelled_leaves_a_tape_that_goes_on() -> None:
    kept = Group()
    kept.live.concurrency = AsyncioConcurrency()

    async def cancelled() -> None:
        async def never() -> Any:
            await asyncio.sleep(60)

        asked = group(answers(*KEYS))
        asked[1] = replace(asked[1], call=never)
        task = asyncio.ensure_future(kept.journal.record_all(asked))
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1, "no call goes on"

    run(cancelled())
    assert [entry.key for entry in kept.entries()] == [KEYS[0], KEYS[2]]


def forge(entries: Sequence[Entry], change: Callable[[list[Draft]], None]) -> list[Entry]:
    """A tape that was changed and linked anew, as somebody with the database could."""
    drafts = [Draft(one.kind, one.key, one.at_us, one.by, one.body or b"", one.salt or b"") for one in entries]
    change(drafts)
    forged: list[Entry] = []
    head = genesis(TENANT, RUN)
    for number, draft in enumerate(drafts, start=1):
        forged.append(link(TENANT, RUN, number, head, draft))
        head = forged[-1].hash
    return forged


def swap_keys(drafts: list[Draft]) -> None:
    drafts[0], drafts[1] = drafts[0]._replace(key=drafts[1].key), drafts[1]._replace(key=drafts[0].key)


ATTACKS: dict[str, tuple[Callable[[list[Draft]], None], int, str]] = {
    "swapped": (swap_keys, 1, "`0/b/1` asks something else than was recorded"),
    "dropped": (lambda drafts: drafts.pop(1) and None, 3, "where the tape ends"),
    "doubled": (lambda drafts: drafts.insert(1, drafts[0]), 2, "it is of `0/a/1`, and the loop waits for"),
    "foreign": (
        lambda drafts: drafts.insert(1, drafts[0]._replace(kind="act.looked_up")),
        2,
        "it is of `0/a/1`, and the loop waits for",
    ),
    "other step": (
        lambda drafts: drafts.insert(1, drafts[0]._replace(key="1/a/1")),
        2,
        "it is of `1/a/1`, and the loop waits for",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_group_that_was_changed_is_named(attack: str) -> None:
    change, seq, says = ATTACKS[attack]
    tape = RunJournal(TENANT, RUN, forge(tape_of(), change), executing, "executing", None)
    with pytest.raises(ReplayMismatch) as mismatch:
        run(tape.record_all(group({})))
    assert mismatch.value.seq == seq
    assert says in str(mismatch.value)
    broken = tape_of()
    change(broken)  # type: ignore[arg-type]
    with pytest.raises(ChainBroken):
        verify_chain(TENANT, RUN, broken)


SAID = [("received", True), ("identity", True), ("context", False), ("pinned", True), ("parameters", False)]
"""What a run says in order: the key, and whether it is recorded or derived."""


async def say(journal: RunJournal, outside: Callable[[], Any]) -> None:
    for key, is_recorded in SAID:
        if is_recorded:
            await journal.record("history.read", key, {"asks": key}, outside)
        else:
            journal.derive("run.context", key, {"says": key})


def move(drafts: list[Draft], at: int, to: int) -> None:
    drafts.insert(to, drafts.pop(at))


CHANGES: dict[str, Callable[[list[Draft], int], Any]] = {
    "dropped": lambda drafts, at: drafts.pop(at),
    "doubled": lambda drafts, at: drafts.insert(at, drafts[at]),
    "moved to the end": lambda drafts, at: move(drafts, at, len(drafts)),
    "swapped with the next": lambda drafts, at: move(drafts, at, at + 1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("at", range(len(SAID) - 1))
@pytest.mark.parametrize("is_live", [True, False], ids=["recovery", "replay"])
def test_a_tape_of_which_an_entry_was_changed_is_refused_before_anybody_is_asked(
    change: str, at: int, is_live: bool
) -> None:
    def journal(tape: Sequence[Entry], kept: Kept | None) -> RunJournal:
        return RunJournal(TENANT, RUN, tape, executing, "executing", kept.live if kept else None)

    async def outside() -> Any:
        return {"says": "something"}

    kept = Kept()
    kept.journal = journal((), kept)
    run(say(kept.journal, outside))
    whole = kept.entries()
    assert [entry.key for entry in whole] == [key for key, _ in SAID]
    run(say(journal(whole, None), nobody))
    forged = forge(whole, lambda drafts: CHANGES[change](drafts, at))
    with pytest.raises(ReplayMismatch) as mismatch:
        run(say(journal(forged, Kept() if is_live else None), nobody))
    assert mismatch.value.seq == (at + 2 if change == "doubled" else at + 1)


def test_nothing_is_derived_behind_the_end_of_a_tape() -> None:
    with pytest.raises(ReplayMismatch, match="the loop goes on where the tape ends"):
        RunJournal(TENANT, RUN, (), executing, "executing", None).derive("run.context", "", {})


def test_a_replay_knows_how_far_the_clock_was_behind() -> None:
    kept = Kept()
    kept.journal.follows(0, 0, 5_000_000)

    async def answer() -> Any:
        return ANSWER

    run(kept.journal.record("run.received", "", {}, answer))
    run(kept.journal.take_over())
    kept.journal.derive("run.context", "", {})
    assert kept.journal.now_us - kept.journal.clock_us == 5_000_000
    assert kept.journal.clock_us <= kept.clock.at_us
    tape = RunJournal(TENANT, RUN, kept.entries(), transition, START, None)
    run(tape.record("run.received", "", {}, nobody))
    tape.derive("run.context", "", {})
    assert (tape.now_us, tape.clock_us) == (kept.journal.now_us, kept.journal.clock_us)


@pytest.mark.parametrize("answer", [[], {}, {"cause": "expired", "behind_us": "an hour"}, {"behind_us": True}], ids=str)
def test_a_resumed_entry_that_states_no_number_crashes_no_replay(answer: Any) -> None:
    kept = Kept()
    kept.journal.follows(0, 0, 5_000_000)

    async def received() -> Any:
        return ANSWER

    run(kept.journal.record("run.received", "", {}, received))
    run(kept.journal.take_over())
    kept.journal.derive("run.context", "", {})

    def overwrite(drafts: list[Draft]) -> None:
        [at] = [at for at, draft in enumerate(drafts) if draft.kind == "run.resumed"]
        drafts[at] = drafts[at]._replace(body=canonical({"request_digest": content_address({}), "answer": answer}))

    tape = RunJournal(TENANT, RUN, forge(kept.entries(), overwrite), transition, START, None)
    run(tape.record("run.received", "", {}, nobody))
    tape.derive("run.context", "", {})
    assert tape.clock_us == tape.now_us


def test_a_run_that_waits_again_after_a_crash_reads_how_it_was_resumed_before_the_answer_that_comes() -> None:
    first = link(
        TENANT, RUN, 1, genesis(TENANT, RUN), Draft("run.received", "", 1, "runtime", asked(ANSWER), b"s" * 16)
    )
    second = link(TENANT, RUN, 2, first.hash, Draft("run.resumed", "", 2, "w", asked({"cause": "recovery"}), b"s" * 16))
    answer = link(TENANT, RUN, 3, second.hash, Draft("approval.answered", "k", 3, "user", asked({}), b"s" * 16))
    live = Kept().live
    live.signed, live.can_suspend = (2, second.hash, "kid", "00"), True
    journal = RunJournal(TENANT, RUN, (first, second), executing, START, live)
    run(journal.record("run.received", "", {"q": 1}, nobody))
    waiting = journal.wait(("approval.answered",), "k", wake_at_us=2**60, on_timeout=None)
    waiting.send(None)
    assert journal.goes_on((first, second, answer), (live.signed,), 1)
    with pytest.raises(StopIteration) as ended:
        waiting.send(None)
    assert ended.value.value[0] == VOID_ANSWER
    assert [entry.kind for entry in journal.log()] == ["run.received", "run.resumed"]
    assert journal.head == answer.hash


def asked(answer: Any) -> bytes:
    return canonical({"request_digest": content_address({"q": 1}), "answer": answer})
