"""What a passkey is asked for, and what is read from its answer. The attacks are in `test_e36_passkeys.py`."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.identity import Approver
from contextos.errors import ApprovalRefused
from contextos.trust.approvals.passkeys import (
    challenge_of,
    passkey_assertion,
    passkey_fault,
    request_options,
    sign_count,
)
from contextos.trust.seal import decode_base64
from tests.passkeys import ORIGIN, Passkey

STATEMENT = {"approval_id": "appr_1", "approver": "ana", "verdict": "approved"}


def person(*listed: dict[str, Any]) -> Approver:
    return Approver.model_validate({"approver_id": "ana", "passkeys": listed})


def test_the_challenge_is_the_digest_of_the_statement() -> None:
    assert f"sha256:{decode_base64(challenge_of(STATEMENT)).hex()}" == content_address(STATEMENT)


def test_an_assertion_for_the_statement_proves_it() -> None:
    passkey = Passkey(count=6)
    ana = person(passkey.listed())
    found = passkey_assertion(passkey.get(request_options(ana, ORIGIN, STATEMENT))).passkey
    assert found is not None
    assert sign_count(found) == 7
    assert passkey_fault(ana, found, STATEMENT) is None
    assert passkey_fault(ana, found, {**STATEMENT, "verdict": "denied"}) is not None


def test_a_browser_that_names_no_user_leaves_it_to_the_passkey() -> None:
    passkey = Passkey()
    ana = person(passkey.listed(user_handle=None))
    options = request_options(ana, ORIGIN, STATEMENT)
    for handle, holds in ((None, True), (b"user-handle-77", False)):
        found = passkey_assertion(passkey.get(options, handle=handle)).passkey
        assert found is not None
        assert (passkey_fault(ana, found, STATEMENT) is None) is holds


def test_all_passkeys_of_a_page_are_offered() -> None:
    first, second = Passkey(), Passkey(credential_id=b"second")
    other = Passkey(credential_id=b"third").listed(origin="https://other.example")
    options = request_options(person(first.listed(), second.listed(), other), ORIGIN, STATEMENT)
    assert len(options["allowCredentials"]) == 2
    with pytest.raises(ApprovalRefused):
        request_options(person(), ORIGIN, STATEMENT)
