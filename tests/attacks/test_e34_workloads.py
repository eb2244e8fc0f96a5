"""E34: workloads of other trust domains, tokens for others, and agents that are nobody's or suspended."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from contextos.adapters.jwks import PinnedJwks
from contextos.contracts.envelopes.identity import KnownDelegation
from contextos.errors import InvalidInput, NotFound, SignatureInvalid, Unavailable
from contextos.trust.identity.svid import TrustDomain
from contextos.trust.seal import KeyRing
from contextos.workspace.logins.bearer import BearerTokens, TrustedDomain
from contextos_sim.memory.stores import MemoryStores
from tests.issuer import NOW_S, segment
from tests.spire import AUDIENCE, DOMAIN, WORKLOAD, bundle, domain_keys, svid
from tests.unit.adapters.test_oidc_directory import AGENT, StillClock
from tests.unit.adapters.test_signed_directory import TENANTS, write
from tests.unit.adapters.test_signed_directory import opened as directory_at
from tests.world import TENANT, request, run

OTHER = "tenant_other"
RING = KeyRing.from_seed(b"k" * 32)
REF = "tok_usr_771"


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def changed(change: Callable[[dict[str, Any]], None], **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps({TENANT: TENANTS[TENANT], **more}))
    change(made)
    return made


def tokens_at(
    path: Path,
    clock: StillClock,
    content: Any = None,
    tenants: tuple[str, ...] = (TENANT,),
    domains: tuple[str, ...] = (DOMAIN,),
    keys: Any = None,
) -> BearerTokens:
    file = path / "directory.dsse.json"
    if content or not file.exists():
        write(file, 1, content)
    trusted = {
        name: TrustedDomain(TrustDomain(name, AUDIENCE), keys or PinnedJwks(bundle()), tenants) for name in domains
    }
    return BearerTokens(directory_at(file, MemoryStores()), clock, RING, None, trusted)


def own_key() -> str:
    """A token by a key of the attacker's own, which they bring along."""
    attacker = ECKey.generate_key("P-256", {"kid": "svid-1"})
    real = domain_keys()["svid-1"]
    try:
        domain_keys()["svid-1"] = attacker
        return svid(header={"jwk": attacker.as_dict(private=False)})
    finally:
        domain_keys()["svid-1"] = real


def shared_secret() -> str:
    said = ".".join(
        segment(json.dumps(part).encode())
        for part in (
            {"alg": "HS256", "kid": "svid-rsa", "typ": "JWT"},
            {"sub": WORKLOAD, "aud": [AUDIENCE], "exp": NOW_S + 300},
        )
    )
    secret = domain_keys()["svid-rsa"].as_pem(private=False)
    return f"{said}.{segment(hmac.digest(secret, said.encode(), 'sha256'))}"


ATTACKS: dict[str, Callable[[], str]] = {
    "alg none": lambda: f"{segment({'alg': 'none', 'kid': 'svid-1'})}.{svid().split('.')[1]}.",
    "HS256 with the public key": shared_secret,
    "by an algorithm that SPIFFE does not have": lambda: svid(header={"alg": "EdDSA"}),
    "by an algorithm that is not listed": lambda: svid("svid-rsa", "RS512"),
    "by a key in the header": own_key,
    "by a key for X.509": lambda: svid("x509-1"),
    "by a key for other signatures": lambda: svid("sig-1"),
    "by a key that states no use": lambda: svid("plain-1"),
    "by a key of another trust domain": lambda: svid("other-1"),
    "without a key id": lambda: svid(header={"kid": None}),
    "of another type": lambda: svid(header={"typ": "at+jwt"}),
    "with an extension": lambda: svid(header={"crit": ["x"], "x": 1}),
    "expired": lambda: svid(exp=NOW_S - 61),
    "that never ends": lambda: svid(exp=None),
    "that ends in a year": lambda: svid(exp=NOW_S + 31_536_000),
    "not valid yet": lambda: svid(nbf=NOW_S + 61),
    "issued in the future": lambda: svid(iat=NOW_S + 61),
    "for another audience": lambda: svid(aud=["https://payroll.acme.example"]),
    "for our audience and another": lambda: svid(aud=[AUDIENCE, "https://payroll.acme.example"]),
    "for a part of our audience": lambda: svid(aud="contextos"),
    "for no audience": lambda: svid(aud=None),
    "for an empty list": lambda: svid(aud=[]),
    "without a subject": lambda: svid(sub=None),
    "of a subject that is no SPIFFE id": lambda: svid(sub="agt_support"),
    "of the trust domain itself": lambda: svid(sub="spiffe://contextos"),
    "of the trust domain itself, with a slash": lambda: svid(sub="spiffe://contextos/"),
    "of a trust domain that nobody listed": lambda: svid(sub="spiffe://evil.example/agents/support"),
    "of a trust domain whose name begins alike": lambda: svid(sub="spiffe://contextos.evil.example/agents/support"),
    "with a user in the id": lambda: svid(sub="spiffe://contextos@evil.example/agents/support"),
    "with a port in the id": lambda: svid(sub="spiffe://contextos:443/agents/support"),
    "with a query in the id": lambda: svid(sub=f"{WORKLOAD}?x"),
    "in capitals": lambda: svid(sub=WORKLOAD.upper()),
    "of a workload that is no agent": lambda: svid(sub="spiffe://contextos/agents/none"),
    "of a path below that of an agent": lambda: svid(sub=f"{WORKLOAD}/x"),
    "of an agent that is retired": lambda: svid(sub="spiffe://contextos/agents/support-old"),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_token_that_proves_no_workload_here_is_refused(tmp_path: Path, clock: StillClock, attack: Any) -> None:
    with pytest.raises(SignatureInvalid):
        run(tokens_at(tmp_path, clock).caller(attack()))


@pytest.mark.parametrize(("kid", "alg"), [("svid-1", "ES256"), ("svid-rsa", "RS256")])
@pytest.mark.parametrize("says", [{}, {"aud": AUDIENCE}, {"iat": NOW_S - 5, "iss": "https://spire.acme.example"}])
def test_the_same_token_without_the_attack_names_its_agent(
    tmp_path: Path, clock: StillClock, kid: str, alg: str, says: dict[str, Any]
) -> None:
    for typ in ("JWT", "JOSE", None):
        caller = run(tokens_at(tmp_path, clock).caller(svid(kid, alg, {"typ": typ}, **says)))
        assert (caller.kind, caller.tenant_id, caller.subject) == ("workload", TENANT, WORKLOAD)
        assert (caller.agent_ids, caller.roles, caller.scopes) == ((AGENT,), (), ())


def test_a_trust_domain_vouches_for_no_workload_of_another(tmp_path: Path, clock: StillClock) -> None:
    """Both domains are trusted; each has its own keys."""
    trusted = {
        DOMAIN: TrustedDomain(TrustDomain(DOMAIN, AUDIENCE), PinnedJwks(bundle("svid-1")), (TENANT,)),
        "other": TrustedDomain(TrustDomain("other", AUDIENCE), PinnedJwks(bundle("other-1")), (TENANT,)),
    }
    tokens = tokens_at(tmp_path, clock)
    tokens.domains = trusted
    assert run(tokens.caller(svid("svid-1")))
    for said in (svid("other-1"), svid("svid-1", sub="spiffe://other/agents/support")):
        with pytest.raises(SignatureInvalid):
            run(tokens.caller(said))


def test_a_workload_is_in_the_tenants_of_its_trust_domain_alone(tmp_path: Path, clock: StillClock) -> None:
    both = changed(lambda _: None, **{OTHER: TENANTS[TENANT]})
    tokens = tokens_at(tmp_path, clock, both, (OTHER,))
    assert run(tokens.caller(svid())).tenant_id == OTHER
    with pytest.raises(NotFound) as theirs:
        run(tokens.caller(svid(), tenant_id=TENANT))
    with pytest.raises(NotFound) as nobodys:
        run(tokens.caller(svid(), tenant_id="tenant_nowhere"))
    assert str(theirs.value) == str(nobodys.value)
    shared = tokens_at(tmp_path, clock, None, (TENANT, OTHER))
    with pytest.raises(InvalidInput, match="several tenants"):
        run(shared.caller(svid()))
    assert run(shared.caller(svid(), tenant_id=TENANT)).tenant_id == TENANT
    with pytest.raises(SignatureInvalid, match="nobody in a tenant"):
        run(tokens_at(tmp_path, clock, None, ("tenant_nowhere",)).caller(svid()))


@pytest.mark.parametrize("state", ["suspended", "retired"])
def test_a_suspended_agent_is_refused_with_a_token_that_was_kept(tmp_path: Path, clock: StillClock, state: str) -> None:
    tokens = tokens_at(tmp_path, clock)
    assert run(tokens.caller(svid()))
    write(tmp_path / "directory.dsse.json", 2, changed(lambda all_: all_[TENANT]["agents"][0].update(lifecycle=state)))
    with pytest.raises(SignatureInvalid):
        run(tokens.caller(svid()))


def body(**user: Any) -> dict[str, Any]:
    made = request(900, "req_e34")
    made["agent"].pop("principal_chain", None)
    return {**made, "user": {**made["user"], **user}}


def delegating(ref: str | None) -> dict[str, Any]:
    return {"auth_type": "oauth2", "scopes": ["orders.read"], "token_ref": ref}


def test_a_workload_acts_for_a_user_who_delegated_to_its_agent(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)
    caller = run(tokens.caller(svid()))
    stated = body(delegation=delegating(REF))
    stated["agent"] = {}
    made = run(tokens.request(caller, stated))
    assert (made["user"]["user_id"], made["user"]["delegation"]["token_ref"]) == ("usr_771", REF)
    assert made["agent"] == {"agent_id": AGENT, "workload_identity": WORKLOAD}
    assert caller.is_behind("usr_771", AGENT)
    assert not caller.is_behind("usr_771", "agt_support_old")


NOBODYS: dict[str, Callable[[], Any]] = {
    "without a delegation": lambda: body(delegation=None),
    "without a reference": lambda: body(delegation=delegating(None)),
    "without a user": lambda: body(user_id=None, delegation=delegating(REF)),
    "for another user than the one who delegated": lambda: body(user_id="usr_772", delegation=delegating(REF)),
    "under a reference with half a character": lambda: body(delegation=delegating("oidc:\ud800")),
    "under a reference with a zero": lambda: body(delegation=delegating("oidc:\0")),
    "under a reference that is too long": lambda: body(delegation=delegating("oidc:" + "x" * 10_000)),
    "for a user with half a character": lambda: body(user_id="\ud800", delegation=delegating(REF)),
    "under a reference that nobody gave": lambda: body(delegation=delegating("tok_none")),
    "as another agent": lambda: {**body(delegation=delegating(REF)), "agent": {"agent_id": "agt_support_old"}},
    "of another workload": lambda: {
        **body(delegation=delegating(REF)),
        "agent": {"agent_id": AGENT, "workload_identity": "spiffe://contextos/agents/other"},
    },
    "in another tenant": lambda: {**body(delegation=delegating(REF)), "tenant_id": OTHER},
}


@pytest.mark.parametrize("attack", NOBODYS.values(), ids=NOBODYS)
def test_a_workload_acts_for_nobody_else(tmp_path: Path, clock: StillClock, attack: Any) -> None:
    tokens = tokens_at(tmp_path, clock)
    with pytest.raises(InvalidInput):
        run(tokens.request(run(tokens.caller(svid())), attack()))


def test_a_delegation_that_ended_lends_a_workload_nothing(tmp_path: Path, clock: StillClock) -> None:
    ended = KnownDelegation(subject="usr_771", agent_id=AGENT, scopes=("orders.read",), expires_at=NOW_S)
    content = changed(lambda all_: all_[TENANT]["delegations"].update({REF: ended.to_json()}))
    tokens = tokens_at(tmp_path, clock, content)
    with pytest.raises(InvalidInput, match="in force"):
        run(tokens.request(run(tokens.caller(svid())), body(delegation=delegating(REF))))


def test_a_bundle_that_is_silent_or_none_lets_nobody_in(tmp_path: Path, clock: StillClock) -> None:
    class Silent:
        async def with_key(self, _kid: str) -> Any:
            raise Unavailable("oidc issuer", "it is down")

    with pytest.raises(Unavailable):
        run(tokens_at(tmp_path, clock, keys=Silent()).caller(svid()))
    emptied = PinnedJwks({"keys": []})
    with pytest.raises(SignatureInvalid, match="no key"):
        run(tokens_at(tmp_path, clock, keys=emptied).caller(svid()))
