"""Every change of a stream is found at the entry where it begins."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from contextos.contracts.entries.linked import forget
from contextos.contracts.journal import KNOWN_SEMANTICS, Draft, Entry, body_digest, genesis, header_hash, link
from contextos.errors import ChainBroken, UnknownSemantics
from contextos.trust.journal import chain
from contextos.trust.journal.chain import append, refuse_unknown_semantics, verify_chain, verify_once


def stream(length: int = 4) -> list[Entry]:
    made: list[Entry] = []
    for seq in range(1, length + 1):
        before = made[-1].hash if made else genesis("t", "run")
        made.append(link("t", "run", seq, before, Draft("run.context", str(seq), seq, "runtime", b"{}", bytes(16))))
    return made


ENTRIES = stream()


def test_a_whole_stream_verifies_to_its_last_hash_also_from_the_middle() -> None:
    assert verify_chain("t", "run", []) == genesis("t", "run")
    assert verify_chain("t", "run", ENTRIES) == ENTRIES[-1].hash
    assert verify_chain("t", "run", ENTRIES[2:], after=ENTRIES[1]) == ENTRIES[-1].hash


def changed(at: int, **fields: Any) -> list[Entry]:
    return [*ENTRIES[:at], ENTRIES[at]._replace(**fields), *ENTRIES[at + 1 :]]


@pytest.mark.parametrize(
    ("entries", "seq"),
    [
        (ENTRIES[1:], 1),
        ([*ENTRIES[:1], *ENTRIES[2:]], 2),
        ([ENTRIES[1], ENTRIES[0]], 1),
        ([ENTRIES[0], ENTRIES[0]], 2),
        (changed(1, tenant="u"), 2),
        (changed(1, run="other"), 2),
        (changed(2, at_us=9), 3),
        (changed(2, by="mallory"), 3),
        (changed(2, kind="run.pinned"), 3),
        (changed(0, body=b"[]"), 1),
        (changed(0, body=None), 1),
        (changed(0, salt=None), 1),
        (changed(0, body=b"[]", body_digest=body_digest(bytes(16), b"[]")), 1),
    ],
)
def test_a_change_is_named_by_its_entry(entries: list[Entry], seq: int) -> None:
    verify_once("t", "run", ENTRIES)
    for verify in (verify_chain, verify_once):
        with pytest.raises(ChainBroken) as found:
            verify("t", "run", entries)
        assert (found.value.stream, found.value.seq) == ("run", seq)


def test_what_was_verified_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    forget("t", "run")
    verify_once("t", "run", ENTRIES[:3])
    hashed = list[int]()
    monkeypatch.setattr(chain, "header_hash", lambda one: (hashed.append(one.seq), header_hash(one))[1])
    verify_once("t", "run", [Entry(*one) for one in ENTRIES])
    assert hashed == [4]
    verify_once("t", "run", ENTRIES)
    assert hashed == [4]
    verify_chain("t", "run", ENTRIES)
    assert hashed == [4, 1, 2, 3, 4], "an audit computes them all"


def test_a_lawful_erasure_verifies() -> None:
    assert verify_chain("t", "run", changed(1, body=None, salt=None)) == ENTRIES[-1].hash


def test_a_persons_entry_continues_the_stream_and_never_goes_back_in_time() -> None:
    added = append(ENTRIES, "approval.answered", "0/pay", by="ann", answer={"a": 1}, at_us=0, salt=bytes(16))
    assert verify_chain("t", "run", [*ENTRIES, added]) == added.hash
    assert added.at_us == ENTRIES[-1].at_us
    assert added.body is not None
    assert orjson.loads(added.body)["answer"] == {"a": 1}


@pytest.mark.parametrize("answer", [{"semantics": max(KNOWN_SEMANTICS) + 1}, {"semantics": None}, {}])
def test_a_run_of_another_runtime_is_refused(answer: dict[str, Any]) -> None:
    pinned = ENTRIES[0]._replace(kind="run.pinned", body=orjson.dumps({"answer": answer}))
    received = ENTRIES[0]._replace(kind="run.received", body=orjson.dumps({"answer": {"deployment": answer}}))
    for entry in (pinned, received):
        with pytest.raises(UnknownSemantics):
            refuse_unknown_semantics([entry])


@pytest.mark.parametrize("answer", [{"semantics": KNOWN_SEMANTICS[-1]}, {"failure": {}}])
def test_a_run_of_this_runtime_and_one_that_was_never_pinned_are_accepted(answer: dict[str, Any]) -> None:
    refuse_unknown_semantics([ENTRIES[0]._replace(kind="run.pinned", body=orjson.dumps({"answer": answer}))])
