"""Which issuers a deployment trusts, by its settings. The attacks are in `test_e33`, `test_e34` and `test_e35`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import contextos
from contextos.cli.demo.workspace import make_workspace
from contextos.errors import InvalidSettings, SignatureInvalid, Unavailable
from contextos.workspace import App
from contextos.workspace.logins.bearer import tokens_bound_to, tokens_of_issuer
from contextos.workspace.settings import Settings
from contextos.workspace.settings.callers import TrustDomainSetting, WorkloadsSetting
from contextos.workspace.settings.directory import OidcDirectorySetting
from tests.issuer import AUDIENCE, ISSUER, jwks, token
from tests.loopback import serving
from tests.spire import AUDIENCE as SVID_AUDIENCE
from tests.spire import DOMAIN, WORKLOAD, bundle, svid
from tests.unit.adapters.test_signed_directory import KEEPER, write
from tests.world import TENANT, public_key, run

DEVELOPMENT = ("unsafe_local_directory", "unsafe_local_keys")


def within(settings: Settings, act: Callable[[App], Coroutine[Any, Any, Any]]) -> None:
    async def go() -> None:
        async with contextos.open(settings) as app:
            await act(app)

    run(go())


def settings_at(path: Path) -> Settings:
    make_workspace(path, witness="off")
    return Settings.read(path)


def of_issuer(path: Path, settings: Settings) -> Settings:
    write(path / "directory.dsse.json", 1, json.loads((path / "directory.json").read_bytes()))
    (path / "jwks.json").write_text(json.dumps(jwks()))
    named = OidcDirectorySetting(
        "directory.dsse.json",
        (public_key(KEEPER).hex(),),
        ISSUER,
        AUDIENCE,
        {"idp-support": "support_agent"},
        jwks_file="jwks.json",
    )
    return replace(settings, directory=named, unsafe=("unsafe_local_keys",))


def now_s() -> int:
    return int(time.time())


def test_people_by_their_issuer_and_workloads_by_their_trust_domain(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    settings = of_issuer(path, settings_at(path))
    (path / "bundle.json").write_text(json.dumps(bundle("svid-1")))
    domain = TrustDomainSetting(DOMAIN, (TENANT,), bundle_file="bundle.json")
    settings = replace(settings, workloads=WorkloadsSetting(SVID_AUDIENCE, (domain,)))

    async def act(app: App) -> None:
        tokens = app.bearer_tokens(bound_to="0.0.0.0")
        person = await tokens.caller(token(groups=["idp-support"], iat=now_s(), exp=now_s() + 60))
        assert (person.kind, person.subject, person.roles) == ("user", "user_9041", ("support_agent",))
        workload = await tokens.caller(svid(exp=now_s() + 60))
        assert (workload.kind, workload.subject) == ("workload", WORKLOAD)
        assert not tokens.development
        with pytest.raises(SignatureInvalid, match="no issuer"):
            await tokens_of_issuer(app.settings, app.deployment.ports).caller(svid(exp=now_s() + 60))

    within(settings, act)


def test_the_bundle_of_a_trust_domain_is_fetched(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    settings, asked = settings_at(path), []

    def answer(one: Any) -> tuple[int, bytes, dict[str, str]]:
        asked.append(one.path)
        return 200, json.dumps(bundle()).encode(), {}

    with serving(answer) as url:
        domain = TrustDomainSetting(DOMAIN, (TENANT,), bundle_url=f"{url}/bundle")

        async def act(app: App) -> None:
            tokens = app.bearer_tokens(bound_to="0.0.0.0")
            for _ in range(3):
                assert (await tokens.caller(svid(exp=now_s() + 60))).subject == WORKLOAD

        within(replace(settings, workloads=WorkloadsSetting(SVID_AUDIENCE, (domain,))), act)
    assert asked == ["/bundle"]


def test_a_bundle_that_is_not_there_is_an_outage(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    domain = TrustDomainSetting(DOMAIN, (TENANT,), bundle_file="bundle.json")

    async def act(app: App) -> None:
        with pytest.raises(Unavailable, match="cannot be read"):
            await app.bearer_tokens(bound_to="0.0.0.0").caller(svid(exp=now_s() + 60))

    within(replace(settings_at(path), workloads=WorkloadsSetting(SVID_AUDIENCE, (domain,))), act)


def test_a_deployment_whose_tokens_nobody_makes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop"

    async def act(app: App) -> None:
        assert app.bearer_tokens(bound_to="127.0.0.1").development
        with pytest.raises(InvalidSettings, match="no issuer of tokens"):
            app.bearer_tokens(bound_to="0.0.0.0")
        with pytest.raises(InvalidSettings, match="takes no tokens"):
            tokens_of_issuer(app.settings, app.deployment.ports)

    within(settings_at(path), act)


def test_a_directory_of_the_program_is_refused(tmp_path: Path) -> None:
    settings = Settings(tmp_path, unsafe=DEVELOPMENT)
    outside: Any = SimpleNamespace(directory=None, clock=None, keys=None)
    with pytest.raises(InvalidSettings, match="one of the program"):
        tokens_bound_to(settings, outside, "127.0.0.1")
