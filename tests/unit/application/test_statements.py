"""What a person signs elsewhere is what the act would have had them sign, and reading it changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from contextos.application.statements import Statement, signer_by_token, statement_of
from contextos.errors import ApprovalRefused
from contextos.operations.signing import SignStatement
from contextos.trust.approvals.acts import ACT_TYP

SAID = {"kind": "run.retried", "actor": "user_operator_5"}


class Act:
    """An act that signs, and then changes something."""

    def __init__(self) -> None:
        self.proofs: list[Mapping[str, Any]] = []

    async def __call__(self, sign: SignStatement) -> None:
        self.proofs.append(sign(SAID))


def test_the_statement_of_an_act_is_read_and_nothing_is_done() -> None:
    act = Act()
    said = asyncio.run(statement_of(act))
    assert (said.typ, json.loads(said.payload), act.proofs) == (ACT_TYP, SAID, [])


def test_the_same_act_with_the_token_is_done_with_it() -> None:
    act = Act()
    asyncio.run(act(signer_by_token("a.b.c")))
    assert act.proofs == [{"kind": "jws", "token": "a.b.c"}]


def test_what_is_refused_before_it_is_signed_has_no_statement() -> None:
    async def refuse(_sign: SignStatement) -> None:
        raise ApprovalRefused("not_waiting", "the run has ended")

    with pytest.raises(ApprovalRefused, match="has ended"):
        asyncio.run(statement_of(refuse))


def test_what_is_signed_names_the_key_and_the_type() -> None:
    header = Statement(ACT_TYP, SAID).signing_input("key_1").partition(b".")[0]
    assert b'"' not in header
    assert Statement("other+jws", SAID).signing_input("key_1").partition(b".")[0] != header
