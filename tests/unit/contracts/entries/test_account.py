"""What an account says when it is read."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.account import LedgerSoFar
from contextos.contracts.entries.kinds import account_of
from contextos.contracts.journal import Logged


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
