"""The directory's entry of a new passkey. Wrong answers of browsers are in `test_e40_passkeys_over_http.py`."""

from __future__ import annotations

import pytest

from contextos.contracts.envelopes.identity import Approver, ApproverPasskey
from contextos.errors import ApprovalRefused
from contextos.trust.approvals.passkey_registration import (
    creation_options,
    registered_passkey,
    registration_digest,
    relying_party_of,
)
from contextos.trust.approvals.passkeys import PASSKEY_ALGORITHMS
from tests.passkeys import ORIGIN, Passkey, base64url

PERSON = Approver(approver_id="ana")
CHALLENGE = base64url(b"c" * 32)


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256"])
def test_the_entry_is_that_of_the_key_and_of_the_page(algorithm: str) -> None:
    key = Passkey(algorithm)
    options = creation_options("t", PERSON, ORIGIN, CHALLENGE)
    made = registered_passkey("t", "ana", ORIGIN, CHALLENGE, key.create(options))
    assert made.to_json() == key.listed(rp_id="console.acme.example")
    assert made.user_handle == options["user"]["id"]


def test_a_person_has_one_handle_in_each_tenant_and_no_other_has_it() -> None:
    handles = [
        creation_options(tenant, Approver(approver_id=name), ORIGIN, CHALLENGE)["user"]["id"]
        for tenant, name in (("t", "ana"), ("t", "omar"), ("u", "ana"), ("t", "ana"))
    ]
    assert len(set(handles)) == 3
    assert handles[0] == handles[3]
    assert all(len(one) == 43 for one in handles)


def test_what_the_person_has_is_not_made_again() -> None:
    known = ApproverPasskey.model_validate(Passkey().listed())
    options = creation_options("t", Approver(approver_id="ana", passkeys=(known,)), ORIGIN, CHALLENGE)
    assert options["excludeCredentials"] == [{"type": "public-key", "id": known.credential_id}]
    assert [one["alg"] for one in options["pubKeyCredParams"]] == list(PASSKEY_ALGORITHMS)


def test_a_digest_names_the_person_and_the_key() -> None:
    one, other = (ApproverPasskey.model_validate(Passkey().listed()) for _ in range(2))
    digests = {registration_digest(*said) for said in (("ana", one), ("ana", other), ("omar", one))}
    assert len(digests) == 3


@pytest.mark.parametrize(("origin", "host"), [(ORIGIN, "console.acme.example"), ("http://localhost:8765", "localhost")])
def test_the_relying_party_is_the_host_of_the_page(origin: str, host: str) -> None:
    assert relying_party_of(origin) == host


@pytest.mark.parametrize("origin", ["https://127.0.0.1", "https://[::1]:8443"])
def test_an_address_is_no_relying_party(origin: str) -> None:
    with pytest.raises(ApprovalRefused):
        relying_party_of(origin)


def test_a_credential_id_that_is_too_long_is_refused() -> None:
    key = Passkey(credential_id=b"x" * 60_000)
    options = creation_options("t", PERSON, ORIGIN, CHALLENGE)
    with pytest.raises(ApprovalRefused, match="larger"):
        registered_passkey("t", "ana", ORIGIN, CHALLENGE, key.create(options))
