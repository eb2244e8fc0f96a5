"""E33: bearer tokens of others, of the wrong kind or tenant, and bodies that state more than a token proves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.oidc_directory import ClaimNames, OidcDirectory
from contextos.errors import InvalidInput, NotFound, SignatureInvalid, Unavailable
from contextos.trust.identity.callers import Caller
from contextos.trust.identity.claims import mint_subject_token
from contextos.trust.seal import KeyRing
from contextos.workspace.logins.bearer import BearerTokens
from contextos_sim.memory.stores import MemoryStores
from tests.attacks.test_e28_oidc_tokens import ATTACKS
from tests.issuer import AUDIENCE, ISSUER, NOW_S, claims, jwks, segment, token
from tests.unit.adapters.test_oidc_directory import AGENT, CLAIMS, StillClock, opened
from tests.unit.adapters.test_signed_directory import TENANTS, write
from tests.world import TENANT, request, run

OTHER = "tenant_other"
SAYS = {"groups": ["idp-support"], "scope": "orders.read payments.refund"}
RING = KeyRing.from_seed(b"k" * 32)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def tokens_at(path: Path, clock: StillClock, claims: ClaimNames = CLAIMS, tenants: Any = None) -> BearerTokens:
    if tenants:
        write(path / "directory.dsse.json", 1, tenants)
    directory = opened(path, clock, MemoryStores(), RING, claims)
    return BearerTokens(directory, clock, RING, ISSUER)


def called(tokens: BearerTokens, tenant_id: str | None = None, **says: Any) -> Caller:
    return run(tokens.caller(token(**{**SAYS, **says}), tenant_id=tenant_id))


def own_claim() -> str:
    return mint_subject_token(
        keys=RING,
        issuer=ISSUER,
        audience=AUDIENCE,
        tenant_id=TENANT,
        run_id="run_1",
        user_id="user_9041",
        agent_urn="agent:contextos/support-refund@1.2.0",
        scopes=frozenset(),
        now_us=NOW_S * 1_000_000,
        ttl_s=60,
        jti="call_1",
    )


OTHERS: dict[str, Callable[[], str]] = {
    **ATTACKS,
    "of an issuer that nobody listed": lambda: token(**SAYS, iss="https://login.attacker.example"),
    "of an issuer whose name begins alike": lambda: token(**SAYS, iss=f"{ISSUER}.attacker.example"),
    "of no issuer": lambda: token(**SAYS, iss=None),
    "of a list of issuers": lambda: token(**SAYS, iss=[ISSUER]),
    "of nobody with a role": lambda: token(**{**SAYS, "groups": ["staff"]}),
    "of a role without a group": lambda: token(**{**SAYS, "groups": None}),
    "as an access token, where ID tokens are taken": lambda: token(**SAYS, header={"typ": "at+jwt"}),
    "the runtime's own statement about a user": own_claim,
    "of the type of a development token": lambda: token(**SAYS, header={"typ": "ctxdev+jwt"}),
    "a subject that is a workload": lambda: token(**SAYS, iss="x", sub="spiffe://contextos/agents/support"),
    "not ASCII": lambda: "é.é.é",
    "half a character": lambda: "\ud800.a.b",
    "with a blank": lambda: f" {token(**SAYS)}",
    "with a line break": lambda: f"{token(**SAYS)}\n",
    "with `Bearer` twice": lambda: f"Bearer {token(**SAYS)}",
}


@pytest.mark.parametrize("attack", OTHERS.values(), ids=OTHERS)
def test_a_token_that_proves_nobody_here_is_refused(tmp_path: Path, clock: StillClock, attack: Any) -> None:
    tokens = tokens_at(tmp_path, clock)
    for _ in range(2):
        with pytest.raises(SignatureInvalid) as refused:
            run(tokens.caller(attack()))
    assert "user_9041" not in str(refused.value)


def test_the_same_token_without_the_attack_names_its_user(tmp_path: Path, clock: StillClock) -> None:
    caller = called(tokens_at(tmp_path, clock))
    assert (caller.kind, caller.tenant_id, caller.subject, caller.issuer) == ("user", TENANT, "user_9041", ISSUER)
    assert (caller.roles, caller.scopes) == (("support_agent",), ("orders.read", "payments.refund"))
    assert caller.expires_at == NOW_S + 300
    assert token(**SAYS).split(".")[1] not in repr(caller)


def test_a_token_is_asked_for_by_no_issuer_that_it_invents(tmp_path: Path, clock: StillClock) -> None:
    """The `iss` of a token, its `jku` and its `kid` make this deployment send no request anywhere."""
    tokens = tokens_at(tmp_path, clock)
    asked: list[str] = []

    class Watched:
        async def with_key(self, kid: str) -> Any:
            asked.append(kid)
            return jwks()

    assert isinstance(tokens.directory, OidcDirectory)
    tokens.directory._jwks = Watched()
    for said in (token(iss="https://attacker.example/"), "x.y.z", token(header={"typ": "ctxdev+jwt"})):
        with pytest.raises(SignatureInvalid):
            run(tokens.caller(said))
    assert asked == []


def test_a_verified_token_counts_no_longer_than_it_is_valid(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)
    said = token(**SAYS, exp=NOW_S + 30)
    assert run(tokens.caller(said))
    clock.at_us = (NOW_S + 29) * 1_000_000
    assert run(tokens.caller(said))
    clock.at_us = (NOW_S + 30 + 61) * 1_000_000
    with pytest.raises(SignatureInvalid, match="expired"):
        run(tokens.caller(said))


def test_a_key_that_the_issuer_withdrew_counts_for_a_minute_at_most(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)
    said = token(**SAYS)
    assert run(tokens.caller(said))
    assert isinstance(tokens.directory, OidcDirectory)

    class Withdrawn:
        async def with_key(self, _kid: str) -> Any:
            return {"keys": [one for one in jwks()["keys"] if one["kid"] != "ec-1"]}

    tokens.directory._jwks = Withdrawn()
    assert run(tokens.caller(said))
    clock.at_us += 60 * 1_000_000
    with pytest.raises(SignatureInvalid, match="no key"):
        run(tokens.caller(said))


def test_an_issuer_that_is_silent_lets_nobody_in(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)

    class Silent:
        async def with_key(self, _kid: str) -> Any:
            raise Unavailable("oidc issuer", "it is down")

    assert isinstance(tokens.directory, OidcDirectory)
    tokens.directory._jwks = Silent()
    with pytest.raises(Unavailable):
        called(tokens)


def test_no_tenant_but_those_of_the_token_and_each_looks_like_one_that_is_not_there(
    tmp_path: Path, clock: StillClock
) -> None:
    both = {TENANT: TENANTS[TENANT], OTHER: TENANTS[TENANT]}
    tokens = tokens_at(tmp_path, clock, replace(CLAIMS, tenant_claim="tenants"), both)
    assert called(tokens, tenants=[TENANT]).tenant_id == TENANT
    assert called(tokens, OTHER, tenants=[TENANT, OTHER]).tenant_id == OTHER
    with pytest.raises(NotFound) as theirs:
        called(tokens, OTHER, tenants=[TENANT])
    with pytest.raises(NotFound) as nobodys:
        called(tokens, "tenant_nowhere", tenants=[TENANT, "tenant_nowhere"])
    assert str(theirs.value) == str(nobodys.value)
    with pytest.raises(InvalidInput, match="several tenants"):
        called(tokens, tenants=[TENANT, OTHER])
    for none in (None, [], "tenant_nowhere", {TENANT: True}, [[TENANT]], f"{TENANT}x"):
        with pytest.raises(SignatureInvalid, match="nobody in a tenant"):
            called(tokens, TENANT, tenants=none)


def test_without_a_tenant_claim_a_token_is_of_no_tenant_among_several(tmp_path: Path, clock: StillClock) -> None:
    both = {TENANT: TENANTS[TENANT], OTHER: TENANTS[TENANT]}
    tokens = tokens_at(tmp_path, clock, CLAIMS, both)
    with pytest.raises(SignatureInvalid, match="nobody in a tenant"):
        called(tokens, TENANT, tenant=TENANT)


def body(**changes: Any) -> dict[str, Any]:
    made = request(900, "req_e33")
    made["user"] = {"delegation": {"auth_type": "oauth2", "scopes": ["orders.read", "payments.refund"]}}
    made["agent"].pop("principal_chain", None)
    return {**made, **changes}


def test_a_request_gets_the_identity_of_its_token(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)
    caller = called(tokens)
    made = run(tokens.request(caller, {k: v for k, v in body().items() if k != "tenant_id"}))
    assert (made["tenant_id"], made["user"]["user_id"], made["agent"]["agent_id"]) == (TENANT, "user_9041", AGENT)
    held = run(tokens.directory.delegation(TENANT, made["user"]["delegation"]["token_ref"]))
    assert (held.subject, held.agent_id) == ("user_9041", AGENT)
    again = run(tokens.request(called(tokens, iat=NOW_S - 1), body()))
    assert again["user"]["delegation"] == made["user"]["delegation"], "a later token renews that of the request"


USER = {"user_id": "user_9041"}
MORE: dict[str, Callable[[], Any]] = {
    "another tenant": lambda: body(tenant_id=OTHER),
    "another user": lambda: body(user={"user_id": "usr_772"}),
    "another user's delegation": lambda: body(
        user={**USER, "delegation": {"auth_type": "oauth2", "scopes": [], "token_ref": "tok_usr_771"}}
    ),
    "a delegation of a wider token of their own": lambda: body(
        user={**USER, "delegation": {"auth_type": "oauth2", "scopes": [], "token_ref": "oidc:" + "0" * 32}}
    ),
    "an agent that is retired": lambda: body(agent={**body()["agent"], "agent_id": "agt_support_old"}),
    "an agent that nobody knows": lambda: body(agent={**body()["agent"], "agent_id": "agt_none"}),
    "no agent": lambda: body(agent={}),
    "an agent that is a list": lambda: body(agent=[AGENT]),
    "a user that is a text": lambda: body(user="user_9041"),
    "a user id that is an object": lambda: body(user={"user_id": {"$ne": ""}}),
    "a delegation that is a text": lambda: body(user={**USER, "delegation": "all"}),
    "an agent with half a character": lambda: body(agent={**body()["agent"], "agent_id": "\ud800"}),
    "a request id with half a character": lambda: body(request_id="\ud800"),
    "a request id with a zero": lambda: body(request_id="req\0"),
    "a request id that is too long": lambda: body(request_id="r" * 100_000),
    "no object": lambda: [body()],
    "nothing": lambda: None,
}


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
def test_a_body_states_no_more_than_its_token_proves(tmp_path: Path, clock: StillClock, more: Any) -> None:
    tokens = tokens_at(tmp_path, clock)
    caller = called(tokens)
    with pytest.raises(InvalidInput):
        run(tokens.request(caller, more()))


def test_an_agent_acts_for_nobody_unasked(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)
    made = run(tokens.request(called(tokens), body(user={})))
    assert "delegation" not in made["user"]
    assert run(tokens.acting(called(tokens), agent=AGENT, delegate=False)).token is None


def test_a_narrow_token_goes_on_under_no_wider_one(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)
    wide, narrow = called(tokens, iat=NOW_S - 5), called(tokens, scope="orders.read", iat=NOW_S - 9)
    kept = run(tokens.acting(wide, agent=AGENT, session="task"))
    with pytest.raises(InvalidInput, match="scopes that this token does not have"):
        run(tokens.acting(narrow, agent=AGENT, session="task"))
    with pytest.raises(InvalidInput, match="not the one of the token"):
        run(tokens.acting(narrow, agent=AGENT, delegation=kept.token))
    assert run(tokens.directory.delegation(TENANT, run(tokens.acting(narrow, agent=AGENT)).token)).scopes == (
        "orders.read",
    )


def test_a_narrow_token_that_was_kept_goes_on_under_no_wider_one(tmp_path: Path, clock: StillClock) -> None:
    """The sign-in of the narrow token is still in memory when the wide one renews the session."""
    tokens = tokens_at(tmp_path, clock)
    narrow = called(tokens, scope="orders.read", iat=NOW_S - 9)
    assert run(tokens.acting(narrow, agent=AGENT, session="task"))
    assert run(tokens.acting(called(tokens, iat=NOW_S - 5), agent=AGENT, session="task"))
    with pytest.raises(InvalidInput, match="scopes that this token does not have"):
        run(tokens.acting(narrow, agent=AGENT, session="task"))


def test_where_the_settings_name_a_claim_for_it_a_token_names_its_agent(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock, replace(CLAIMS, agent_claim="agent"))
    caller = called(tokens, agent=AGENT)
    assert caller.agent_ids == (AGENT,)
    assert run(tokens.acting(caller)).agent == AGENT
    with pytest.raises(InvalidInput, match="does not name this agent"):
        run(tokens.acting(caller, agent="agt_other"))
    for said in (None, "", 7, [AGENT]):
        with pytest.raises(SignatureInvalid, match="names no agent"):
            called(tokens, agent=said)
    assert isinstance(tokens.directory, OidcDirectory)
    with pytest.raises(SignatureInvalid, match="another agent"):
        run(tokens.directory.sign_in(TENANT, token(**SAYS, agent="agt_other"), agent_id=AGENT))


def test_an_agent_that_is_suspended_meanwhile_is_refused_with_a_kept_token(tmp_path: Path, clock: StillClock) -> None:
    tokens = tokens_at(tmp_path, clock)
    assert run(tokens.acting(called(tokens), agent=AGENT))
    for number, state in enumerate(("suspended", "retired"), 2):
        changed = json.loads(json.dumps(TENANTS))
        changed[TENANT]["agents"][0]["lifecycle"] = state
        write(tmp_path / "directory.dsse.json", number, changed)
        with pytest.raises(InvalidInput, match="no active agent"):
            run(tokens.acting(called(tokens), agent=AGENT))


def test_a_token_that_names_an_agent_is_nobody_once_the_agent_is_not_active(tmp_path: Path, clock: StillClock) -> None:
    """Also where it only reads: the runs of the agent, and their events."""
    tokens = tokens_at(tmp_path, clock, replace(CLAIMS, agent_claim="agent"))
    assert called(tokens, agent=AGENT).agent_ids == (AGENT,)
    with pytest.raises(SignatureInvalid, match="not active"):
        called(tokens, agent="agt_unknown")
    for number, state in enumerate(("suspended", "retired"), 2):
        changed = json.loads(json.dumps(TENANTS))
        changed[TENANT]["agents"][0]["lifecycle"] = state
        write(tmp_path / "directory.dsse.json", number, changed)
        with pytest.raises(SignatureInvalid, match="not active"):
            called(tokens, agent=AGENT)


def test_a_person_sees_their_own_runs_alone() -> None:
    person = Caller("user", TENANT, "ana", ISSUER, None, (), (), 0, "sha256:0")
    assert person.is_behind("ana", AGENT)
    assert not person.is_behind("bob", AGENT)
    limited = replace(person, agent_ids=(AGENT,))
    assert not limited.is_behind("ana", "agt_other")
    assert not limited.is_behind("bob", AGENT)


def test_a_thousand_tokens_are_not_kept_for_ever(tmp_path: Path, clock: StillClock, monkeypatch: Any) -> None:
    monkeypatch.setattr("contextos.workspace.logins.bearer.MAX_KEPT_TOKENS", 3)
    tokens = tokens_at(tmp_path, clock)
    for number in range(10):
        run(tokens.acting(called(tokens, nonce=str(number)), agent=AGENT))
    assert (len(tokens._tokens), len(tokens._sign_ins)) == (3, 3)


def test_a_swapped_payload_is_not_found_among_the_kept(tmp_path: Path, clock: StillClock) -> None:
    tokens, said = tokens_at(tmp_path, clock), token(**SAYS)
    run(tokens.caller(said))
    head, _, signature = said.split(".")
    with pytest.raises(SignatureInvalid):
        run(tokens.caller(f"{head}.{segment(claims(**SAYS, sub='user_cfo'))}.{signature}"))
