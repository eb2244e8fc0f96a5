"""E32: users whom no token made, tokens of others, and a token that ends while a run waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.oidc_directory import IDENTITY_TYPE, ClaimNames, OidcDirectory
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.documents.identities import SIGNED_IN, SealedIdentity
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, Batch
from contextos.errors import InvalidInput, InvalidSettings, SignatureInvalid, Unavailable
from contextos.trust.seal import KeyRing, seal
from contextos.workspace.settings import Settings
from contextos.workspace.settings.directory import OidcDirectorySetting
from contextos_sim.memory.stores import MemoryStores
from tests.issuer import AUDIENCE, ISSUER, NOW_S, Issuer, issuer, token
from tests.unit.adapters.test_oidc_directory import AGENT, CLAIMS, SAYS, StillClock, opened
from tests.unit.adapters.test_signed_directory import KEEPER, TENANTS, write
from tests.world import TENANT, public_key, request, run


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


async def put(stores: Any, key: str, envelope: Any, tenant: str = TENANT) -> None:
    store = stores.tenant(tenant)
    found = await SIGNED_IN.one(store, key)
    write_ = SIGNED_IN.write(key, found.version if found else 0, SealedIdentity(envelope))
    await store.commit(Batch(run=CONTROL, writes=(write_,)))


def made_up(keys: KeyRing, purpose: Any = "claim", kind: str = IDENTITY_TYPE) -> Any:
    body = {"user_id": "user_cfo", "role": "support_lead", "delegation_live": True}
    times = {"issued_at": NOW_S, "expires_at": NOW_S + 300}
    payload = {"tenant_id": TENANT, "key": "user/user_cfo", **times, "body": body}
    return seal(kind, canonical(payload), keys, purpose)


OWN, THEIRS = KeyRing.from_seed(b"k" * 32), KeyRing.from_seed(b"x" * 32)
MADE_UP = {
    "by another key": lambda: made_up(THEIRS),
    "by a key for another purpose": lambda: made_up(OWN, "pack"),
    "as another type": lambda: made_up(OWN, kind="application/json"),
    "no envelope": lambda: {"user_id": "user_cfo"},
}


@pytest.mark.parametrize("make", MADE_UP.values(), ids=MADE_UP)
def test_a_user_whom_the_owner_of_the_database_makes_up_is_nobody(tmp_path: Path, clock: StillClock, make: Any) -> None:
    stores = MemoryStores()
    directory = opened(tmp_path, clock, stores)
    run(put(stores, "user/user_cfo", make()))
    assert run(directory.resolve(TENANT, "user_cfo", AGENT)) is None
    run(put(stores, "user/user_cfo", made_up(OWN)))
    assert run(directory.resolve(TENANT, "user_cfo", AGENT)), "the runtime's own seal counts: the test can fail"


def test_what_was_sealed_for_one_person_or_tenant_is_nothing_for_another(tmp_path: Path, clock: StillClock) -> None:
    stores = MemoryStores()
    directory = opened(tmp_path, clock, stores)
    said = run(directory.sign_in(TENANT, token(**SAYS), agent_id=AGENT))
    held = run(SIGNED_IN.one(stores.tenant(TENANT), f"user/{said.user_id}")).body.envelope
    run(put(stores, "user/user_cfo", held))
    assert run(directory.resolve(TENANT, "user_cfo", AGENT)) is None
    run(put(stores, "delegation/oidc:other", held))
    assert run(directory.delegation(TENANT, "oidc:other")) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: token(**SAYS, aud="payroll"),
        lambda: token(**SAYS, iss="https://login.attacker.example"),
        lambda: token(**SAYS, iat=NOW_S - 900, exp=NOW_S - 600),
        lambda: token(**SAYS)[:-4] + "AAAA",
        lambda: token(**SAYS, header={"kid": "ec-2"}),
        lambda: "no token",
    ],
    ids=["another audience", "another issuer", "expired", "another signature", "another key id", "no token"],
)
def test_a_token_that_does_not_count_signs_nobody_in(tmp_path: Path, clock: StillClock, wrong: Any) -> None:
    stores = MemoryStores()
    directory = opened(tmp_path, clock, stores)
    with pytest.raises(SignatureInvalid):
        run(directory.sign_in(TENANT, wrong(), agent_id=AGENT))
    assert run(directory.resolve(TENANT, "user_9041", AGENT)) is None


def test_an_older_token_brings_no_role_back(tmp_path: Path, clock: StillClock) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    older = token(**{**SAYS, "groups": ["idp-leads"]}, iat=NOW_S - 100)
    newer = token(**SAYS, iat=NOW_S - 10)
    for one, role in ((older, "support_lead"), (newer, "support_agent"), (older, "support_agent")):
        said = run(directory.sign_in(TENANT, one, agent_id=AGENT))
        assert run(directory.resolve(TENANT, said.user_id, AGENT)).user.role == role
    clock.at_us = (NOW_S + 299) * 1_000_000
    assert run(directory.resolve(TENANT, said.user_id, AGENT)), "and it takes no time away"


def test_an_older_token_of_fewer_scopes_does_not_go_on_under_the_delegation_of_a_newer_one(
    tmp_path: Path, clock: StillClock
) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    narrow = token(**{**SAYS, "scope": "orders:read"}, iat=NOW_S - 100)
    wide, wide_too = token(**SAYS, iat=NOW_S - 10), token(**SAYS, iat=NOW_S - 50)
    for one in (narrow, wide, wide_too):
        said = run(directory.sign_in(TENANT, one, agent_id=AGENT, session="ana:task"))
    assert run(directory.delegation(TENANT, said.token_ref)).scopes == ("payments.refund",)
    with pytest.raises(InvalidInput, match="scopes that this token does not have"):
        run(directory.sign_in(TENANT, narrow, agent_id=AGENT, session="ana:task"))
    own = run(directory.sign_in(TENANT, narrow, agent_id=AGENT, session="ana:other"))
    assert run(directory.delegation(TENANT, own.token_ref)).scopes == ()


@pytest.mark.parametrize("token_", [None, b"a.b.c", 7, "", "a.b.c", "." * 9], ids=repr)
def test_what_is_no_token_is_refused_by_name(tmp_path: Path, clock: StillClock, token_: Any) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    with pytest.raises(SignatureInvalid):
        run(directory.sign_in(TENANT, token_, agent_id=AGENT))


def two_tenants(path: Path, clock: StillClock, claims: ClaimNames) -> OidcDirectory:
    write(path / "directory.dsse.json", 1, {TENANT: TENANTS[TENANT], "tenant_other": TENANTS[TENANT]})
    return opened(path, clock, MemoryStores(), claims=claims)


def test_a_user_of_one_tenant_is_nobody_in_another(tmp_path: Path, clock: StillClock) -> None:
    directory = two_tenants(tmp_path, clock, replace(CLAIMS, tenant_claim="tenants"))
    run(directory.check())
    said = run(directory.sign_in(TENANT, token(**SAYS, tenants=[TENANT]), agent_id=AGENT))
    assert run(directory.resolve(TENANT, said.user_id, AGENT))
    for tenants in ([TENANT], "tenant_others", None, {"tenant_other": True}, [["tenant_other"]]):
        with pytest.raises(SignatureInvalid, match="one of this tenant"):
            run(directory.sign_in("tenant_other", token(**SAYS, tenants=tenants), agent_id=AGENT))
    assert run(directory.resolve("tenant_other", said.user_id, AGENT)) is None
    keys = (f"user/{said.user_id}", f"delegation/{said.token_ref}")
    for key in keys:
        sealed = run(SIGNED_IN.one(directory._stores.tenant(TENANT), key)).body.envelope
        run(put(directory._stores, key, sealed, "tenant_other"))
    assert run(directory.resolve("tenant_other", said.user_id, AGENT)) is None, "nor is what was sealed for another"
    assert run(directory.delegation("tenant_other", said.token_ref)) is None


def test_a_tenant_that_is_gone_has_no_users_and_no_delegations(tmp_path: Path, clock: StillClock) -> None:
    directory = two_tenants(tmp_path, clock, replace(CLAIMS, tenant_claim="tenants"))
    said = run(directory.sign_in("tenant_other", token(**SAYS, tenants="tenant_other"), agent_id=AGENT))
    assert run(directory.delegation("tenant_other", said.token_ref))
    write(tmp_path / "directory.dsse.json", 2, {TENANT: TENANTS[TENANT]})
    assert run(directory.resolve("tenant_other", said.user_id, AGENT)) is None
    assert run(directory.delegation("tenant_other", said.token_ref)) is None


def test_more_groups_than_anybody_has_are_none(tmp_path: Path, clock: StillClock) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    groups = ["idp-support", *(f"group-{number}" for number in range(256))]
    with pytest.raises(SignatureInvalid, match="nobody with a role"):
        run(directory.sign_in(TENANT, token(**{**SAYS, "groups": groups}), agent_id=AGENT))
    assert run(directory.sign_in(TENANT, token(**{**SAYS, "groups": groups[:256]}), agent_id=AGENT))


def test_several_tenants_without_a_tenant_claim_sign_nobody_in(tmp_path: Path, clock: StillClock) -> None:
    directory = two_tenants(tmp_path, clock, CLAIMS)
    with pytest.raises(InvalidSettings, match="several tenants"):
        run(directory.check())
    with pytest.raises(SignatureInvalid, match="one of this tenant"):
        run(directory.sign_in(TENANT, token(**SAYS), agent_id=AGENT))


@pytest.fixture
def server() -> Iterator[Issuer]:
    with issuer() as made:
        yield made


def workspace(path: Path, url: str) -> Settings:
    """The example's workspace, whose users come from the issuer at `url`."""
    make_workspace(path)
    write(path / "directory.dsse.json", 1, loads((path / "directory.json").read_bytes()))
    named = OidcDirectorySetting(
        "directory.dsse.json",
        (public_key(KEEPER).hex(),),
        ISSUER,
        AUDIENCE,
        {"idp-support": "support_agent", "idp-leads": "support_lead"},
        jwks_url=url,
        scopes=("orders.read", "payments.refund"),
    )
    settings = replace(Settings.read(path), directory=named, unsafe=("unsafe_local_keys",), witness="off")
    with contextos.open(settings) as app:
        app.initialise(TENANT, by=example_operator(path))
        app.call(seed_graph, app, Workspace(path, TENANT, {}))
    return settings


def asked(amount: int, request_id: str, user_id: str, token_ref: str) -> dict[str, Any]:
    body = request(amount, request_id)
    delegation = {**body["user"]["delegation"], "subject": user_id, "token_ref": token_ref}
    body["user"] = {"user_id": user_id, "delegation": delegation}
    body["agent"].pop("principal_chain", None)
    return body


def test_a_refund_for_a_user_of_the_issuer_until_the_token_ends(tmp_path: Path, server: Issuer) -> None:
    settings, now_s = workspace(tmp_path / "a", server.url), int(time.time())
    says = {"groups": ["idp-support"], "scope": "orders.read payments.refund", "iat": now_s, "auth_time": now_s}
    with contextos.open(settings) as app:
        said = app.sign_in(TENANT, token(**says, exp=now_s + 600), agent_id=AGENT)
        view = app.deployment.invoke(asked(900, "req_1", said.user_id, said.token_ref))
        assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", ["unsafe_local_keys"])
        other = app.deployment.invoke(asked(901, "req_2", said.user_id, "oidc:00000000000000000000000000000000"))
        assert other.state != "completed", "a reference that no token made delegates nothing"
        text = json.dumps([json.loads(one.body) for one in app.stores.tenant(TENANT).read(view.run_id)])
        assert token(**says, exp=now_s + 600).split(".")[1] not in text, "the token is kept nowhere"
        short = app.sign_in(TENANT, token("ec-2", **says, exp=now_s + 3), agent_id=AGENT)
        time.sleep(max(0.0, now_s + 3.1 - time.time()))
        late = app.deployment.invoke(asked(902, "req_3", short.user_id, short.token_ref))
        assert late.state != "completed"


def test_an_issuer_that_is_silent_signs_nobody_in_and_stops_nothing_else(tmp_path: Path, server: Issuer) -> None:
    settings = workspace(tmp_path / "a", server.url)
    server.answer = lambda: (503, b"", {})
    with contextos.open(settings) as app, pytest.raises(Unavailable):
        app.sign_in(TENANT, token(**SAYS), agent_id=AGENT)


def test_a_directory_without_tokens_says_so(tmp_path: Path) -> None:
    make_workspace(tmp_path / "a")
    with contextos.open(tmp_path / "a") as app, pytest.raises(InvalidSettings, match="takes no tokens"):
        app.sign_in(TENANT, token(**SAYS), agent_id=AGENT)


def test_both_forms_of_an_app_sign_people_in(tmp_path: Path, server: Issuer) -> None:
    settings, now_s = workspace(tmp_path / "a", server.url), int(time.time())

    async def go() -> str:
        async with contextos.open(settings) as app:
            said = await app.sign_in(TENANT, token(**SAYS, iat=now_s, exp=now_s + 60), agent_id=AGENT)
            return said.user_id

    assert asyncio.run(go()) == "user_9041"
