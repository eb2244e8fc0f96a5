"""E35: tokens of the development issuer outside of development, forged ones, and ones of people who are gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.ports.gates import Done, Refused
from contextos.errors import InvalidInput, InvalidSettings, SignatureInvalid
from contextos.trust.identity.claims import mint_subject_token, sign_token
from contextos.trust.identity.development import DEVELOPMENT_ISSUER, DEVELOPMENT_TYPE, mint_development_token
from contextos.trust.seal import KeyRing
from contextos.workspace import App
from contextos.workspace.logins.bearer import BearerTokens
from contextos.workspace.logins.development_tokens import development_fault, development_token
from contextos.workspace.settings import Settings
from contextos.workspace.settings.directory import OidcDirectorySetting, SignedDirectorySetting
from contextos.workspace.settings.keys import Pkcs8KeysSetting
from tests.sessions import in_world, read_first, refund_calls, refund_session
from tests.unit.workspace.settings.test_callers import GOOD, WorkloadsSetting
from tests.world import TENANT, TestWorld, request, run

AGENT, USER, REF = "agt_support", "usr_771", "tok_usr_771"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "shop"
    make_workspace(made, witness="off")
    return made


def within(path: Path, act: Callable[[App], Coroutine[Any, Any, Any]]) -> Any:
    async def go() -> Any:
        async with contextos.open(path) as app:
            return await act(app)

    return run(go())


async def minted(app: App, user: str | None = USER, agent: str | None = AGENT, ttl_s: int = 600) -> str:
    token, _ = await development_token(
        app.settings, app.deployment.ports, TENANT, user=user, agent=agent, delegation=None, ttl_s=ttl_s
    )
    return token


def local(app: App) -> BearerTokens:
    return app.bearer_tokens(bound_to="127.0.0.1")


def test_a_token_names_a_user_of_the_directory_with_the_roles_that_they_have(path: Path) -> None:
    async def act(app: App) -> None:
        tokens = local(app)
        caller = await tokens.caller(await minted(app))
        assert (caller.kind, caller.tenant_id, caller.subject) == ("user", TENANT, USER)
        assert (caller.issuer, caller.roles, caller.agent_ids) == (DEVELOPMENT_ISSUER, ("support_agent",), (AGENT,))
        assert caller.delegation == REF
        lead = await tokens.caller(await minted(app, "user_finance_lead_77", None))
        assert (lead.roles, lead.agent_ids, lead.delegation) == (("finance_lead",), None, None)
        agent = await tokens.caller(await minted(app, None, AGENT))
        assert (agent.kind, agent.agent_ids, agent.roles) == ("workload", (AGENT,), ())

    within(path, act)


def test_a_refund_for_the_user_of_a_token(path: Path) -> None:
    async def act(app: App) -> None:
        await app.initialise(TENANT, by=example_operator(path))
        await seed_graph(app, Workspace(path, TENANT, {}))
        tokens = local(app)
        body = request(900, "req_e35")
        body["user"] = {"delegation": {"auth_type": "oauth2", "scopes": ["orders.read", "payments.refund"]}}
        del body["tenant_id"]
        made = await tokens.request(await tokens.caller(await minted(app)), body)
        view = await app.deployment.invoke(made)
        assert view.state == "completed"
        assert {"unsafe_local_directory", "unsafe_local_keys"} <= set(view.record["lineage"]["unsafe"])

    within(path, act)


def test_a_token_without_an_agent_is_under_the_delegations_of_its_user_alone(path: Path) -> None:
    async def act(app: App) -> None:
        tokens = local(app)
        caller = await tokens.caller(await minted(app, agent=None))
        assert (await tokens.acting(caller, agent=AGENT, delegation=REF)).token == REF
        assert (await tokens.acting(caller, agent=AGENT)).token is None, "nobody is acted for unasked"
        for delegation in ("tok_usr_772", "tok_none", ""):
            with pytest.raises(InvalidInput, match="no delegation of this user"):
                await tokens.acting(caller, agent=AGENT, delegation=delegation)
        bound = await tokens.caller(await minted(app))
        with pytest.raises(InvalidInput, match="one of the token"):
            await tokens.acting(bound, delegation="tok_usr_772")

    within(path, act)


REFUSED: dict[str, Callable[[Settings], Settings]] = {
    "a service": lambda one: replace(one, profile="service", unsafe=()),
    "a signed directory": lambda one: replace(one, directory=SignedDirectorySetting("d", ("ab" * 32,))),
    "users of an issuer": lambda one: replace(
        one, directory=OidcDirectorySetting("d", ("ab" * 32,), "https://i", "us", {"a": "b"}, jwks_file="k")
    ),
    "encrypted keys": lambda one: replace(one, keys=Pkcs8KeysSetting(passphrase_env="X")),
    "a database of others": lambda one: replace(one, store="postgresql://db.acme.example/contextos"),
    "a database of others, in the query": lambda one: replace(one, store="postgresql:///x?host=db.acme.example"),
    "a database behind a list of hosts": lambda one: replace(one, store="postgresql://localhost,db.acme.example/x"),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_outside_of_development_none_is_made_and_none_counts(path: Path, change: Any) -> None:
    settings = change(Settings.read(path))
    assert development_fault(settings)
    assert development_fault(settings, "127.0.0.1")

    async def act(app: App) -> None:
        token = await minted(app)
        app.settings = settings
        with pytest.raises(InvalidSettings, match="development issuer"):
            await minted(app)
        app.settings = replace(settings, workloads=WorkloadsSetting("us", (GOOD,)))
        tokens = local(app)
        with pytest.raises(SignatureInvalid, match="do not count here"):
            await tokens.caller(token)

    within(path, act)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7", "contextos.acme.example", "localhost.evil.example"])
def test_a_service_that_others_can_reach_takes_none(path: Path, host: str) -> None:
    assert "loopback" in (development_fault(Settings.read(path), host) or "")

    async def act(app: App) -> None:
        with pytest.raises(InvalidSettings, match="no issuer of tokens counts here"):
            app.bearer_tokens(bound_to=host)
        app.settings = replace(app.settings, workloads=WorkloadsSetting("us", (GOOD,)))
        with pytest.raises(SignatureInvalid, match="do not count here"):
            await app.bearer_tokens(bound_to=host).caller(await minted(app))

    within(path, act)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_the_loopback_it_counts(path: Path, host: str) -> None:
    assert development_fault(Settings.read(path), host) is None


def test_keys_or_people_of_the_program_are_no_development(path: Path) -> None:
    """The settings look like development, and the program brought something else."""

    async def act(app: App) -> None:
        token = await minted(app)
        app.settings = replace(app.settings, workloads=WorkloadsSetting("us", (GOOD,)))
        app.keys.unsafe = ()  # type: ignore[attr-defined]
        with pytest.raises(SignatureInvalid, match="do not count here"):
            await local(app).caller(token)

    within(path, act)


def forged(app: App, **changes: Any) -> str:
    now_s = app.deployment.ports.clock.now_us() // 1_000_000
    body = {
        "iss": DEVELOPMENT_ISSUER,
        "aud": DEVELOPMENT_ISSUER,
        "tenant_id": TENANT,
        "user_id": USER,
        "agent_id": AGENT,
        "delegation": REF,
        "roles": ["support_agent"],
        "scopes": [],
        "iat": now_s - 5,
        "exp": now_s + 60,
        **changes,
    }
    return sign_token(app.keys, DEVELOPMENT_TYPE, {k: v for k, v in body.items() if v is not ...})


FORGED: dict[str, Callable[[App], str]] = {
    "by another key": lambda app: mint_development_token(
        KeyRing.from_seed(b"x" * 32),
        tenant_id=TENANT,
        user_id=USER,
        agent_id=AGENT,
        delegation=REF,
        roles=["support_agent"],
        scopes=[],
        now_us=app.deployment.ports.clock.now_us(),
        ttl_s=60,
    ),
    "the runtime's statement for a token exchange": lambda app: mint_subject_token(
        keys=app.keys,
        issuer=DEVELOPMENT_ISSUER,
        audience=DEVELOPMENT_ISSUER,
        tenant_id=TENANT,
        run_id="run_1",
        user_id=USER,
        agent_urn="agent:contextos/support-refund@1.2.0",
        scopes=frozenset(),
        now_us=app.deployment.ports.clock.now_us(),
        ttl_s=60,
        jti="call_1",
    ),
    "expired": lambda app: forged(app, iat=1, exp=2),
    "of the future": lambda app: forged(app, iat=10**10, exp=10**10 + 60),
    "without an end": lambda app: forged(app, exp=...),
    "of another issuer": lambda app: forged(app, iss="other"),
    "for another audience": lambda app: forged(app, aud="other"),
    "of nobody": lambda app: forged(app, user_id=None, agent_id=None),
    "of a list of users": lambda app: forged(app, user_id=[USER]),
    "with roles that are a text": lambda app: forged(app, roles="admin"),
    "of a user whom the directory does not know": lambda app: forged(app, user_id="usr_none"),
    "of an agent whom the directory does not know": lambda app: forged(app, agent_id="agt_none"),
    "of an agent that is retired": lambda app: forged(app, agent_id="agt_support_old"),
    "of a tenant that is not there": lambda app: forged(app, tenant_id="tenant_none"),
    "of no tenant": lambda app: forged(app, tenant_id=...),
}


@pytest.mark.parametrize("make", FORGED.values(), ids=FORGED)
def test_a_forged_or_void_token_names_nobody(path: Path, make: Any) -> None:
    async def act(app: App) -> None:
        with pytest.raises(SignatureInvalid):
            await local(app).caller(make(app))
        assert (await local(app).caller(forged(app))).subject == USER, "the test can fail"

    within(path, act)


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads((path / "directory.json").read_text())
    change(content[TENANT])
    (path / "directory.json").write_text(json.dumps(content))


def test_a_role_that_is_taken_away_is_gone_at_once(path: Path) -> None:
    async def act(app: App) -> None:
        tokens, token = local(app), await minted(app)
        assert (await tokens.caller(token)).roles == ("support_agent",)
        assert (await tokens.caller(forged(app, roles=["support_agent", "operator"]))).roles == ("support_agent",)
        edited(path, lambda tenant: tenant["users"][0].update(role="guest", roles=[]))
        assert (await tokens.caller(token)).roles == ()
        edited(path, lambda tenant: tenant["users"].pop(0))
        with pytest.raises(SignatureInvalid, match="does not know"):
            await tokens.caller(token)

    within(path, act)


NOBODY: dict[str, dict[str, Any]] = {
    "nobody": {"user": None, "agent": None},
    "an unknown user": {"user": "usr_none"},
    "an unknown agent": {"agent": "agt_none"},
    "a retired agent": {"agent": "agt_support_old"},
    "a delegation of somebody else": {"delegation": "tok_usr_772"},
    "a delegation without an agent": {"agent": None, "delegation": REF},
    "a user who delegates nothing": {"user": "user_finance_lead_77"},
    "no time": {"ttl_s": 0},
    "a year": {"ttl_s": 31_536_000},
}


@pytest.mark.parametrize("named", NOBODY.values(), ids=NOBODY)
def test_a_token_for_nobody_is_not_made(path: Path, named: dict[str, Any]) -> None:
    async def act(app: App) -> None:
        asked = {"user": USER, "agent": AGENT, "delegation": None, "ttl_s": 600, **named}
        with pytest.raises(InvalidInput):
            await development_token(app.settings, app.deployment.ports, TENANT, **asked)

    within(path, act)


@pytest.mark.parametrize("state", ["suspended", "retired"])
def test_an_agent_that_is_suspended_meanwhile_is_refused_with_a_token_that_was_kept(path: Path, state: str) -> None:
    async def act(app: App) -> None:
        tokens, token = local(app), await minted(app)
        caller = await tokens.caller(token)
        made = await tokens.request(caller, {**request(900, "req_e35"), "user": {}})
        edited(path, lambda tenant: tenant["agents"][0].update(lifecycle=state))
        with pytest.raises(SignatureInvalid):
            await tokens.caller(token)
        with pytest.raises(InvalidInput, match="no active agent"):
            await tokens.acting(caller)
        with pytest.raises(InvalidInput):
            await minted(app)
        assert made["user"] == {"user_id": USER}

    within(path, act)


@pytest.mark.parametrize("state", ["suspended", "retired"])
@pytest.mark.parametrize("call", [0, 2], ids=["a read", "a write"])
def test_an_open_session_of_a_suspended_agent_makes_no_call(tmp_path: Path, state: str, call: int) -> None:
    """The lifecycle counts for each call of the gate, and not only when the session was opened."""

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "s1", 900)
        if call:
            await read_first(gate, 900)
        world.edit_directory(lambda tenant: tenant["agents"][0].update(lifecycle=state))
        name, args, call_id = refund_calls(900)[call]
        answer = await gate.call(name, args, call_id=call_id)
        assert isinstance(answer, Refused), answer
        assert "identity_refused" in [reason.code for reason in answer.reasons]
        assert world.refunds() == []
        world.edit_directory(lambda tenant: tenant["agents"][0].update(lifecycle="active"))
        again = await gate.call(name, args, call_id="again")
        assert isinstance(again, Done), "the session goes on with the agent"

    in_world(tmp_path, play)
