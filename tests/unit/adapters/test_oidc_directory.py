"""Users from OIDC tokens: who they are, for how long, and in every process of the deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.jwks import PinnedJwks
from contextos.adapters.oidc_directory import ClaimNames, OidcDirectory
from contextos.contracts.ports.storage import Stores
from contextos.errors import NotFound, SignatureInvalid
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores
from tests.issuer import NOW_S, TRUSTED, jwks, token
from tests.unit.adapters.test_signed_directory import KEEPER, TENANTS, write
from tests.world import TENANT, SystemEntropy, public_key, run

AGENT = "agt_support"
CLAIMS = ClaimNames(
    roles={"idp-leads": "support_lead", "idp-support": "support_agent"},
    scopes=("orders.read", "payments.refund"),
    organization_claim="org",
)
SAYS = {"groups": ["idp-support", "other"], "scope": "openid payments.refund orders.delete"}


class StillClock:
    def __init__(self) -> None:
        self.at_us = NOW_S * 1_000_000

    def now_us(self) -> int:
        return self.at_us


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def opened(
    path: Path, clock: StillClock, stores: Stores, keys: KeyRing | None = None, claims: ClaimNames = CLAIMS
) -> OidcDirectory:
    file = path / "directory.dsse.json"
    if not file.exists():
        write(file, 1)
    return OidcDirectory(
        file,
        [public_key(KEEPER)],
        stores,
        issuer=TRUSTED,
        jwks=PinnedJwks(jwks()),
        claims=claims,
        keys=keys or KeyRing.from_seed(b"k" * 32),
        clock=clock,
        entropy=SystemEntropy(),
    )


def test_a_user_is_what_the_claims_say_as_the_settings_map_them(tmp_path: Path, clock: StillClock) -> None:
    stores = MemoryStores()
    directory = opened(tmp_path, clock, stores)
    said = run(directory.sign_in(TENANT, token(**SAYS, org="org_acme"), agent_id=AGENT))
    assert (said.user_id, said.expires_at) == ("user_9041", NOW_S + 300)
    for process in (directory, opened(tmp_path, clock, stores)):
        known = run(process.resolve(TENANT, said.user_id, AGENT))
        assert (known.user.role, known.user.roles, known.user.scopes) == ("support_agent", (), ("payments.refund",))
        assert (known.user.organization_id, known.user.delegation_live, known.unsafe) == ("org_acme", True, ())
        assert known.directory_version == 1
        delegation = run(process.delegation(TENANT, said.token_ref))
        assert (delegation.subject, delegation.agent_id, delegation.scopes) == (
            said.user_id,
            AGENT,
            ("payments.refund",),
        )
    held = run(directory.held_roles(TENANT))
    # Each person who signs in is a user: those of the file are not all, so lint says of no tool that nobody can use it.
    assert (held.users, held.requesters, held.delegations) == (("support_agent", "support_lead"), None, None)


def test_the_first_role_of_the_settings_is_the_users_own(tmp_path: Path, clock: StillClock) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    said = run(directory.sign_in(TENANT, token(groups=["idp-support", "idp-leads"]), agent_id=AGENT))
    user = run(directory.resolve(TENANT, said.user_id, AGENT)).user
    assert (user.role, user.roles, user.scopes) == ("support_lead", ("support_agent",), ())


def test_a_later_token_replaces_what_an_earlier_one_said(tmp_path: Path, clock: StillClock) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    run(directory.sign_in(TENANT, token(groups=["idp-leads"]), agent_id=AGENT))
    run(directory.sign_in(TENANT, token(groups=["idp-support"]), agent_id=AGENT))
    assert run(directory.resolve(TENANT, "user_9041", AGENT)).user.role == "support_agent"


def test_after_the_token_expired_nobody_is_known(tmp_path: Path, clock: StillClock) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    said = run(directory.sign_in(TENANT, token(**SAYS), agent_id=AGENT))
    clock.at_us = (NOW_S + 300) * 1_000_000
    assert run(directory.resolve(TENANT, said.user_id, AGENT)) is None
    assert run(directory.delegation(TENANT, said.token_ref)) is None


def test_users_of_the_file_are_not_users_and_its_agents_and_approvers_are(tmp_path: Path, clock: StillClock) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    listed = TENANTS[TENANT]
    assert run(directory.resolve(TENANT, listed["users"][0]["user_id"], AGENT)) is None
    assert run(directory.approver(TENANT, listed["approvers"][0]["approver_id"]))
    assert run(directory.delegation(TENANT, "tok_usr_771"))
    said = run(directory.sign_in(TENANT, token(**SAYS), agent_id=AGENT))
    assert run(directory.resolve(TENANT, said.user_id, "agt_none")) is None


@pytest.mark.parametrize(
    "says",
    [{}, {"groups": ["other"]}, {"groups": []}, {"groups": 7}, {"groups": [7]}, {"groups": {"idp-support": 1}}],
    ids=str,
)
def test_who_has_no_role_here_is_not_signed_in(tmp_path: Path, clock: StillClock, says: dict[str, Any]) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    with pytest.raises(SignatureInvalid, match="role"):
        run(directory.sign_in(TENANT, token(**says), agent_id=AGENT))


@pytest.mark.parametrize(("tenant", "agent"), [("tenant_invented", AGENT), (TENANT, "agt_none")])
def test_an_unknown_tenant_or_agent_is_named(tmp_path: Path, clock: StillClock, tenant: str, agent: str) -> None:
    directory = opened(tmp_path, clock, MemoryStores())
    with pytest.raises(NotFound):
        run(directory.sign_in(tenant, token(**SAYS), agent_id=agent))
    assert run(directory.delegation("tenant_invented", "oidc:x")) is None
    assert run(directory.resolve("tenant_invented", "user_9041", AGENT)) is None
