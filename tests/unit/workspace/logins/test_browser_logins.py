"""Logins of browsers, by their settings. The attacks are in `test_f51_browser_sessions.py`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

import contextos
from contextos.errors import Conflict, InvalidInput, InvalidSettings, SignatureInvalid
from contextos.workspace import App
from contextos.workspace.logins.browser_logins import BrowserLogins
from contextos.workspace.logins.sessions import csrf_token_of
from contextos.workspace.settings import Settings
from tests.http_face import REQUESTER, TENANT
from tests.oidc_provider import CLIENT, Provider, begin_with_provider, provider
from tests.world import run


def logins_of(app: App) -> BrowserLogins:
    found = app.browser_logins(app.bearer_tokens(bound_to="127.0.0.1"))
    assert found is not None
    return found


async def logged_in(logins: BrowserLogins, made: Provider) -> str:
    """Log in, and return the cookie."""
    begun = logins.begin("/runs")
    back = urlsplit(made.authorize(urlsplit(begun.url).query)).query
    said = dict(parse_qsl(back))
    session = await logins.finish(begun.attempt, state=said["state"], code=said["code"], issuer=said["iss"])
    assert (session.to, session.caller.subject) == ("/runs", REQUESTER)
    assert session.cookie not in repr(session)
    assert begun.attempt not in repr(begun)
    return session.cookie


def test_every_process_of_the_store_knows_a_session_and_its_end(tmp_path: Path) -> None:
    with provider() as made, patch.dict(os.environ, {"XDG_STATE_HOME": str(tmp_path / "state")}):

        async def act() -> None:
            await begin_with_provider(tmp_path / "w", made.url)
            async with contextos.open(tmp_path / "w") as app:
                here, there = logins_of(app), logins_of(app)
                cookie = await logged_in(here, made)
                caller = await there.caller(cookie)
                assert (caller.tenant_id, caller.subject, caller.roles) == (TENANT, REQUESTER, ("support_agent",))
                assert caller.scopes == ("orders.read", "payments.refund")
                assert len(csrf_token_of(cookie)) == 43
                await there.end(cookie)
                await there.end(cookie)
                await there.end("no cookie")
                with pytest.raises(SignatureInvalid, match="ended"):
                    await here.caller(cookie)

        run(act())


def test_a_session_counts_while_its_issuer_and_its_tenant_do(tmp_path: Path) -> None:
    with provider() as made, patch.dict(os.environ, {"XDG_STATE_HOME": str(tmp_path / "state")}):

        async def act() -> None:
            await begin_with_provider(tmp_path / "w", made.url)
            async with contextos.open(tmp_path / "w") as app:
                logins = logins_of(app)
                cookie = await logged_in(logins, made)
                with pytest.raises(SignatureInvalid, match="counts no longer"):
                    await replace(logins, issuer="https://another.example").caller(cookie)
                asked: list[str] = []
                stores: Any = SimpleNamespace(tenant=asked.append)
                unknown = f"dGVuYW50X25vd2hlcmU.{cookie.partition('.')[2]}"
                with pytest.raises(SignatureInvalid, match="not a cookie of a session"):
                    await replace(logins, sessions=replace(logins.sessions, stores=stores)).caller(unknown)
                assert asked == [], "a name from a cookie opens no store"
                assert await logins.caller(cookie)

        run(act())


def test_where_the_directory_takes_id_tokens_the_login_is_the_token(tmp_path: Path) -> None:
    """Its audience is the client then; the access token is for somebody else, and opaque."""
    with provider() as made, patch.dict(os.environ, {"XDG_STATE_HOME": str(tmp_path / "state")}):
        made.answer = {"access_token": "opaque"}

        async def act() -> None:
            await begin_with_provider(tmp_path / "w", made.url)
            settings = Settings.read(tmp_path / "w")
            directory = replace(settings.directory, audience=CLIENT, token_type="JWT", clients=())  # type: ignore[type-var]
            async with contextos.open(replace(settings, directory=directory)) as app:
                logins = logins_of(app)
                assert (await logins.caller(await logged_in(logins, made))).subject == REQUESTER

        run(act())


def test_a_session_that_others_change_all_the_time_is_tried_again(tmp_path: Path) -> None:
    with provider() as made, patch.dict(os.environ, {"XDG_STATE_HOME": str(tmp_path / "state")}):

        async def act() -> None:
            await begin_with_provider(tmp_path / "w", made.url)
            async with contextos.open(tmp_path / "w") as app:
                logins = logins_of(app)
                cookie = await logged_in(logins, made)
                store = app.stores.tenant(TENANT)

                async def conflict(*_args: object, **_options: object) -> None:
                    raise Conflict("somebody", "again")

                with patch.object(type(store), "commit", conflict), pytest.raises(Conflict, match="log in or out"):
                    await logins.end(cookie)
                assert await logins.caller(cookie)

        run(act())


def test_a_place_to_go_to_is_here(tmp_path: Path) -> None:
    with provider() as made, patch.dict(os.environ, {"XDG_STATE_HOME": str(tmp_path / "state")}):

        async def act() -> None:
            await begin_with_provider(tmp_path / "w", made.url)
            async with contextos.open(tmp_path / "w") as app:
                logins = logins_of(app)
                for to in ("//evil.example", "x", "/\\x"):
                    with pytest.raises(InvalidInput, match="not a path"):
                        logins.begin(to)
                with pytest.raises(InvalidInput, match="not a tenant"):
                    logins.begin("/", "t" * 600)
                assert httpx.URL(logins.begin("/runs?a=b#c").url).params["client_id"] == CLIENT

        run(act())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"secret_file": "nowhere"}, "cannot be read"),
        ({"secret_file": "", "secret_env": "CONTEXTOS_NO_SUCH_SECRET"}, "no secret"),
        ({"token_url": "https://a.example/../token"}, "elsewhere"),
    ],
)
def test_a_client_that_cannot_prove_itself_is_refused_at_start(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    with provider() as made, patch.dict(os.environ, {"XDG_STATE_HOME": str(tmp_path / "state")}):

        async def act() -> None:
            await begin_with_provider(tmp_path / "w", made.url)
            settings = Settings.read(tmp_path / "w")
            assert settings.browser_logins is not None
            async with contextos.open(
                replace(settings, browser_logins=replace(settings.browser_logins, **change))
            ) as app:
                with pytest.raises(InvalidSettings, match=said):
                    logins_of(app)

        run(act())
