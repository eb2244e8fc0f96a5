"""What a request states about identity is compared with what the directory knows."""

from typing import Any

import pytest

from contextos.contracts.envelopes.identity import KnownDelegation
from contextos.trust.identity.principals import identity_differences, principal_chain, scopes_in_force
from tests.unit.trust.identity.directory_answers import KNOWN, TENANT, URN, delegated, known, request


def test_a_minimal_request_says_nothing_that_differs() -> None:
    assert identity_differences(request(), KNOWN) == ()


def test_a_request_that_agrees_with_the_directory_is_admitted() -> None:
    chain = [link.to_json() for link in principal_chain(request(), KNOWN)]
    claim = {"sub": URN, "run_id": "run_other", "tenant_id": TENANT, "claim_hash": "sha256:...", "scopes": ["root"]}
    said = request(
        {"role": "customer", **delegated("orders.read")},
        {
            "agent_urn": URN,
            "role": "support_ops",
            "lifecycle": "active",
            "principal_chain": chain,
            "identity_claim": claim,
        },
    )
    assert identity_differences(said, KNOWN) == ()


@pytest.mark.parametrize(
    ("where", "user", "agent"),
    [
        ("user.role", {"role": "finance_lead"}, {}),
        ("agent.role", {}, {"role": "admin"}),
        ("agent.agent_urn", {}, {"agent_urn": "agent:contextos/support-refund@1.2.1"}),
        ("agent.workload_identity", {}, {"workload_identity": "spiffe://evil/agents/support"}),
        ("agent.lifecycle", {}, {"lifecycle": "suspended"}),
        ("user.user_id", {"user_id": "usr_1"}, {}),
        ("agent.agent_id", {}, {"agent_id": "agt_other"}),
        ("user.delegation.scopes", delegated("orders.read", "admin"), {}),
        ("user.delegation.subject", delegated("orders.read", subject="usr_2"), {}),
        ("agent.token_ref", {}, {"token_ref": "tok_other"}),
        ("agent.principal_chain", {}, {"principal_chain": []}),
        (
            "agent.principal_chain",
            {},
            {
                "principal_chain": [
                    {"kind": "user", "id": "usr_771"},
                    {"kind": "agent", "id": URN, "issuer": "https://partner.example"},
                ]
            },
        ),
        (
            "agent.principal_chain",
            {},
            {"principal_chain": [{"kind": "agent", "id": URN}, {"kind": "user", "id": "usr_771"}]},
        ),
        (
            "agent.principal_chain",
            {},
            {
                "principal_chain": [
                    {"kind": "user", "id": "usr_771", "tenant_id": "tenant_other"},
                    {"kind": "agent", "id": URN},
                ]
            },
        ),
        (
            "agent.principal_chain",
            {},
            {
                "principal_chain": [
                    {"kind": "user", "id": "usr_771"},
                    {"kind": "agent", "id": URN},
                    {"kind": "service", "id": "root"},
                ]
            },
        ),
        (
            "agent.principal_chain",
            {},
            {"principal_chain": [{"kind": "service", "id": "usr_771"}, {"kind": "agent", "id": URN}]},
        ),
    ],
)
def test_a_difference_refuses_and_names_its_place(where: str, user: dict[str, Any], agent: dict[str, Any]) -> None:
    failures = identity_differences(request(user, agent), KNOWN)
    assert [(failure.code, failure.facts) for failure in failures] == [("identity_refused", (where,))]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sub", "agent:contextos/admin@1.0.0"),
        ("tenant_id", "tenant_other"),
        ("session_id", "sess_other"),
        ("principal_chain", [{"kind": "user", "id": "usr_admin"}, {"kind": "agent", "id": URN}]),
    ],
)
def test_a_claim_of_somebody_else_refuses(name: str, value: Any) -> None:
    claim = {"sub": URN, "run_id": "run_x", "tenant_id": TENANT, "claim_hash": "sha256:...", name: value}
    failures = identity_differences(request(agent={"identity_claim": claim}), KNOWN)
    assert [failure.facts for failure in failures] == [(f"agent.identity_claim.{name}",)]


@pytest.mark.parametrize("lifecycle", ["suspended", "retired"])
def test_an_agent_that_is_not_active_is_refused_whatever_the_request_says(lifecycle: str) -> None:
    dormant = known(agent={"lifecycle": lifecycle})
    assert [failure.facts for failure in identity_differences(request(), dormant)] == [("agent.lifecycle",)]
    assert len(identity_differences(request(agent={"lifecycle": "active"}), dormant)) == 2


def test_a_delegation_that_is_not_live_delegates_nothing() -> None:
    lapsed = known(user={"delegation_live": False})
    asks = request(delegated("orders.read"))
    assert [failure.facts for failure in identity_differences(asks, lapsed)] == [("user.delegation.scopes",)]
    assert scopes_in_force(asks, lapsed) == frozenset()
    assert identity_differences(request(), lapsed) == ()


def test_scopes_in_force_are_what_user_agent_and_request_share() -> None:
    asks = request(delegated("orders.read"))
    assert scopes_in_force(asks, KNOWN) == {"orders.read"}
    assert scopes_in_force(asks, known(agent={"scopes": ("mail.send",)})) == frozenset()
    token = KnownDelegation(subject="usr_771", agent_id="agt_support", expires_at=1)
    issued = KNOWN.model_copy(update={"delegation": token})
    assert scopes_in_force(asks, issued) == frozenset(), "the token lends no scope"
    assert scopes_in_force(request(delegated()), KNOWN) == frozenset()
    claim = {"sub": URN, "run_id": "run_x", "tenant_id": TENANT, "claim_hash": "sha256:...", "scopes": ["admin"]}
    assert "admin" not in scopes_in_force(request(agent={"identity_claim": claim}), KNOWN)


def test_without_a_delegation_the_agent_has_its_own_scopes_and_not_the_users() -> None:
    own = known(agent={"scopes": ("mail.send",)})
    assert scopes_in_force(request(), own) == {"mail.send"}
    assert scopes_in_force(request(), known(user={"scopes": ()})) == frozenset(KNOWN.agent.scopes)


def test_the_chain_is_the_user_then_the_agent_by_urn_in_the_tenant() -> None:
    assert [link.to_json() for link in principal_chain(request(), KNOWN)] == [
        {"kind": "user", "id": "usr_771", "tenant_id": TENANT},
        {"kind": "agent", "id": URN, "tenant_id": TENANT},
    ]


def test_a_delegation_without_a_token_says_what_it_lacks() -> None:
    undelegated = KNOWN.model_copy(update={"delegation": None})
    [without] = identity_differences(request(delegated("orders.read", token_ref=None)), undelegated)
    [void] = identity_differences(request(delegated("orders.read")), undelegated)
    assert "send its reference" in without.detail
    assert "in force" in void.detail


def test_the_subject_that_the_directory_has_of_the_user_names_the_user_and_another_does_not() -> None:
    named = known({"subject": "u:user:771"})
    assert identity_differences(request(delegated("orders.read", subject="u:user:771")), named) == ()
    [other] = identity_differences(request(delegated("orders.read", subject="u:user:772")), named)
    assert other.facts == ("user.delegation.subject",)


def test_a_delegation_that_is_renewed_is_the_same_and_one_of_other_scopes_or_of_nobody_is_not() -> None:
    given = KnownDelegation(subject="usr_771", agent_id="agt_support", scopes=("orders.read",), expires_at=1)
    before = KNOWN.model_copy(update={"delegation": given})
    later = given.model_copy(update={"expires_at": 2})
    assert before.same_as(KNOWN.model_copy(update={"delegation": later}))
    for change in ({"scopes": ("admin",)}, {"scopes": ()}, {"subject": "usr_2"}, {"agent_id": "agt_other"}):
        assert not before.same_as(KNOWN.model_copy(update={"delegation": later.model_copy(update=change)})), change
    ended = KNOWN.model_copy(update={"delegation": None})
    assert not before.same_as(ended)
    assert not ended.same_as(before)
