"""The tape of a run: where it ends, and what an agent said in a session is read from it in order."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.journal import Draft, Entry, Timeout, genesis, link
from contextos.errors import ReplayMismatch
from contextos.runtime.state_machine import transition
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.tape import first_difference, tape_end
from tests.world import TENANT, run

RUN = "run_00000000000000ab"


def recorded(*said: tuple[str, str, object]) -> list[Entry]:
    """A stream of recorded entries: kind, key, answer."""
    entries: list[Entry] = []
    for number, (kind, key, answer) in enumerate(said, start=1):
        body = canonical({"request_digest": content_address({}), "answer": answer})
        before = entries[-1].hash if entries else genesis(TENANT, RUN)
        entries.append(link(TENANT, RUN, number, before, Draft(kind, key, number, "agent", body, b"s" * 16)))
    return entries


def test_a_tape_ends_before_the_resumptions_that_nothing_follows() -> None:
    resumed = ("run.resumed", "", {"cause": "recovery"})
    asked = ("call.asked", "c1", {"tool": "a.b", "args": {}})
    assert tape_end(recorded(resumed, asked, resumed, resumed)) == 2
    assert tape_end(recorded(resumed)) == 0
    assert tape_end([]) == 0


def test_what_an_agent_said_is_read_in_the_order_in_which_it_was_recorded() -> None:
    asked = {"tool": "a.b", "args": {"n": 1}}
    entries = recorded(("call.asked", "c1", asked), ("session.finished", "0", {"outcome": "denied", "reason": ""}))
    journal = RunJournal(TENANT, RUN, entries, lambda _state, _kind, _body: "open", "open", None)

    async def next_said() -> object:
        kinds = ("call.asked", "session.finished")
        return await journal.receive(
            kinds, clean=lambda said: said, wake_at_us=0, on_timeout=Timeout("session.expired")
        )

    first = run(next_said())
    assert (first.kind, first.key, first.body) == ("call.asked", "c1", asked)
    assert run(next_said()).kind == "session.finished"
    with pytest.raises(ReplayMismatch, match="the tape ends while the run waits"):
        run(next_said())


def test_an_entry_is_found_by_kind_and_key_also_if_not_read_yet_or_added_later() -> None:
    asked = ("call.asked", "c1", {"tool": "a.b", "args": {}})
    finished = ("session.finished", "c2", {"outcome": "denied", "reason": ""})
    entries = recorded(asked, finished)
    journal = RunJournal(TENANT, RUN, entries[:1], lambda _state, _kind, _body: "open", "open", None)
    assert (journal.has("call.asked", "c1"), journal.has("call.asked"), journal.has("session.finished")) == (1, 1, 0)
    journal._tape.append(entries[1])
    assert (journal.has("session.finished", "c2"), journal.has("session.finished", "c1")) == (1, 0)


def test_an_entry_that_the_run_table_does_not_allow_is_refused() -> None:
    journal = RunJournal(
        TENANT, RUN, recorded(("call.asked", "c1", {"tool": "a.b", "args": {}})), transition, "new", None
    )
    with pytest.raises(ReplayMismatch, match="the run table refuses it in state `new`"):
        run(
            journal.receive(
                ("call.asked",), clean=lambda said: said, wake_at_us=0, on_timeout=Timeout("session.expired")
            )
        )


@pytest.mark.parametrize(
    ("recorded", "derived", "where"),
    [
        (1, 2, "`/`"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "`/b`"),
        ({"a": {"z": 1, "y": 1}}, {"a": {"z": 2, "y": 2}}, "`/a/y`"),
        ({"a": 1}, {"a": 1, "b": 2}, "`/b`"),
        ([1, [2, 3]], [1, [2, 4]], "`/1/1`"),
        ([1], [1, 2], "`/`"),
    ],
)
def test_the_first_place_that_differs_is_named(recorded: Any, derived: Any, where: str) -> None:
    assert first_difference(recorded, derived).endswith(where)


@pytest.mark.parametrize(
    ("asked", "stated", "reads"),
    [
        ({}, {}, True),
        ({}, {"request_digest": content_address({})}, True),
        ({"q": 1}, {"request_digest": content_address({"q": 1})}, True),
        ({"q": 1}, {}, False),
        ({"q": 1}, {"request_digest": content_address({"q": 2})}, False),
        ({}, {"request_digest": content_address({"q": 1})}, False),
        ([], {}, False),
        (None, {}, False),
    ],
)
def test_an_answer_without_a_digest_is_one_to_no_question_and_to_no_other(asked: Any, stated: Any, reads: bool) -> None:
    draft = Draft("memory.recalled", "", 1, "runtime", canonical({"answer": [], **stated}), b"s" * 16)
    entries = [link(TENANT, RUN, 1, genesis(TENANT, RUN), draft)]
    journal = RunJournal(TENANT, RUN, entries, lambda _state, _kind, _body: "open", "open", None)

    async def nothing() -> Any:
        raise AssertionError("a replay asks nobody")

    if reads:
        assert run(journal.record("memory.recalled", "", asked, nothing)) == []
        return
    with pytest.raises(ReplayMismatch, match="asks something else"):
        run(journal.record("memory.recalled", "", asked, nothing))
