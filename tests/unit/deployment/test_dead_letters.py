"""A dead letter says which failure it was, and nothing that somebody else's exception says."""

from __future__ import annotations

import pytest

from contextos.contracts.journal import Batch, Draft, genesis, link
from contextos.deployment.dead_letters import MAX_DETAIL_CHARS, add, failure_cause, list_dead_letters
from contextos.errors import ChainBroken, Integrity
from contextos_sim.memory.stores import MemoryStores
from tests.suites.store_suite import at_once


class Stranger(ValueError):
    """Somebody else's, with a code that is no word of ours and a text that repeats what it was given."""

    code = "sk-live-in-the-code"


def letter(fault: BaseException) -> tuple[str, str]:
    store = MemoryStores().tenant("acme")
    entry = link("acme", "run_a", 1, genesis("acme", "run_a"), Draft("run.context", "", 1, "me", b"{}", bytes(16)))
    at_once(store.commit(Batch("run_a", (entry,))))
    assert at_once(add(store, "run_a", failure_cause(fault), 1, seen=1))
    [found] = at_once(list_dead_letters(store))
    return found.code, found.detail


@pytest.mark.requirement("E-DEAD-LETTERS")
@pytest.mark.parametrize("fault", [Stranger("token=sk-live-1"), KeyError("token=sk-live-1"), OSError("sk-live-1")])
def test_a_foreign_exception_leaves_its_class_and_none_of_its_text(fault: Exception) -> None:
    code, detail = letter(fault)
    assert code == type(fault).__name__
    assert "sk-live" not in detail
    assert "worker" in detail, "where its text is to be found"


def test_the_detail_of_a_typed_error_is_bounded() -> None:
    assert letter(ChainBroken("run_a", 7, "its hash differs")) == ("chain_broken", "`run_a` entry 7: its hash differs")
    code, detail = letter(Integrity("ä" * 9_000))
    assert (code, len(detail)) == ("integrity", MAX_DETAIL_CHARS)
