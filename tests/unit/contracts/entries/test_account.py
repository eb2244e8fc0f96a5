"""What an account says when it is read."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.exported import read_export
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.account import OF_RECORD, LedgerSoFar
from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.reading import logged
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.journal import Entry, Logged
from contextos.trust.seal import KeyRing

GOLDEN = Path(__file__).parents[3] / "golden"


def test_a_ledger_is_the_content_address_of_its_hashes_however_often_it_is_read() -> None:
    hashes, ledger = ["sha256:a", "sha256:b", "sha256:c"], LedgerSoFar()
    for number in range(len(hashes) + 1):
        told = {"entries": number, "head": content_address(hashes[:number])}
        assert ledger.as_json() == ledger.as_json() == told
        ledger.add((*hashes, "")[number])


@pytest.mark.parametrize(
    ("body", "why"), [({"reason": "a fact changed"}, "a fact changed"), (None, "its reason was erased")]
)
def test_an_answer_that_the_run_found_void_is_named_with_the_reason(body: Any, why: str) -> None:
    kinds = ("approval.asked", "approval.answered", "approval.voided", "approval.asked", "approval.answered")
    log = [Logged(seq, kind, "0/pay/1", 0, "", body, "") for seq, kind in enumerate(kinds, 1)]
    assert account_of("run_00000000000000ab", log).void_answers() == {2: why}
    assert account_of("run_00000000000000ab", log[:2]).void_answers() == {}


def recorded(name: str) -> list[list[Entry]]:
    """The entries of each golden run up to each of its records."""
    streams = read_export(gzip.decompress((GOLDEN / f"{name}.jsonl.gz").read_bytes()), KeyRing.from_seed(b"k" * 32))
    return [
        list(entries[:at])
        for entries in streams.streams.values()
        for at, one in enumerate(entries, 1)
        if one.kind == "record.revised"
    ]


@pytest.mark.parametrize("name", ["refunds", "sessions"])
def test_each_record_is_made_whole_again_and_has_the_hash_that_it_states(name: str) -> None:
    found = recorded(name)
    assert len(found) >= 4
    for entries in found:
        record = account_of(entries[0].run, logged(entries)).record
        assert record is not None
        DecisionRecord.sealed_from(record)
        stated = {member: value for member, value in record.items() if member != "record_hash"}
        assert content_address(stated) == record["record_hash"]


@pytest.mark.parametrize("kind", OF_RECORD)
def test_a_record_of_which_a_part_was_erased_is_not_shown_without_it(kind: str) -> None:
    for entries in recorded("refunds"):
        if any(one.kind == kind for one in entries):
            erased = [one._replace(body=None, salt=None) if one.kind == kind else one for one in entries]
            assert account_of(entries[0].run, logged(erased)).record is None
