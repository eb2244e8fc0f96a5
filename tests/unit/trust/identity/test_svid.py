"""Which JWT-SVIDs count. The attacks are in `tests/attacks/test_e34_workloads.py`."""

from __future__ import annotations

import pytest

from contextos.errors import InvalidInput, InvalidSettings, SignatureInvalid
from contextos.trust.identity.svid import SVID_ALGORITHMS, TrustDomain, check_bundle, trust_domain_of, verify_svid
from tests.issuer import NOW_S
from tests.issuer import token as oidc_token
from tests.spire import AUDIENCE, DOMAIN, WORKLOAD, bundle, svid


def test_a_token_of_the_domain_names_its_workload() -> None:
    found = verify_svid(svid(), TrustDomain(DOMAIN, AUDIENCE), bundle(), now_us=NOW_S * 1_000_000)
    assert (found.spiffe_id, found.expires_at_s) == (WORKLOAD, NOW_S + 300)
    assert found.token_digest.startswith("sha256:")


def test_the_clock_of_the_domain_can_be_off_by_the_leeway() -> None:
    for leeway_s, says in ((60, {"exp": NOW_S - 59}), (60, {"nbf": NOW_S + 60}), (0, {"exp": NOW_S + 1})):
        trusted = TrustDomain(DOMAIN, AUDIENCE, leeway_s=leeway_s)
        assert verify_svid(svid(**says), trusted, bundle(), now_us=NOW_S * 1_000_000)


def test_keys_of_a_domain_count_for_its_own_workloads_alone() -> None:
    for subject in ("spiffe://other/agents/support", "spiffe://contextos", "spiffe://contextos2/agents/support"):
        with pytest.raises(SignatureInvalid, match="no workload of this trust domain"):
            verify_svid(svid(sub=subject), TrustDomain(DOMAIN, AUDIENCE), bundle(), now_us=NOW_S * 1_000_000)


def test_of_a_bundle_only_keys_for_tokens_are_read() -> None:
    assert check_bundle(bundle()).keys() == {"svid-1", "svid-rsa"}
    for none in (None, {}, {"keys": {}}, []):
        with pytest.raises(InvalidInput):
            check_bundle(none)


def test_the_trust_domain_of_a_token_is_read_without_trust() -> None:
    assert trust_domain_of(svid()) == DOMAIN
    for said in ("", "a.b.c", oidc_token(), svid(sub=None), svid(sub=7), svid(sub="https://contextos/x")):
        assert trust_domain_of(said) is None


def test_the_algorithms_are_those_of_the_specification() -> None:
    assert {one[:2] for one in SVID_ALGORITHMS} == {"RS", "PS", "ES"}
    with pytest.raises(InvalidSettings):
        TrustDomain(DOMAIN, AUDIENCE, ("EdDSA",))
