"""Sessions of browsers in a development workspace: only on this machine, and as long as the token counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contextos.errors import SignatureInvalid
from contextos.workspace.logins.development_logins import DevelopmentLogins
from contextos.workspace.logins.development_tokens import development_token
from contextos.workspace.logins.sessions import BrowserSessions
from tests.http_face import REQUESTER, TENANT, HttpFace, http_face


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("logins")) as made:
        yield made


LOGINS = DevelopmentLogins(None, None)  # type: ignore[arg-type]  # an origin needs neither


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:8765", "[::1]:8765"])
def test_a_page_of_this_machine_is_a_page_of_the_service(host: str) -> None:
    assert LOGINS.origin(host) == f"http://{host}"


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "127.0.0.2"]
)
def test_a_name_that_leads_here_by_chance_is_not(host: str) -> None:
    assert LOGINS.origin(host) == ""


def test_a_session_is_what_the_token_proves_until_it_ends(face: HttpFace) -> None:
    app = face.app
    tokens = app.bearer_tokens(bound_to="127.0.0.1")
    logins = DevelopmentLogins(tokens, BrowserSessions(app.stores, app.keys, tokens.clock, tokens.directory.tenants))

    async def act() -> None:
        token, _ = await development_token(
            app.settings, app.deployment.ports, TENANT, user=REQUESTER, agent="agt_support", delegation=None, ttl_s=60
        )
        first = await logins.begin(token)
        assert await logins.caller(first) == await tokens.caller(token)
        assert token not in first
        second = await logins.begin(token, replaces=first)
        with pytest.raises(SignatureInvalid, match="ended"):
            await logins.caller(first)
        await logins.end(second)
        await logins.end(second)
        for cookie in (second, token, ""):
            with pytest.raises(SignatureInvalid):
                await logins.caller(cookie)
        with pytest.raises(SignatureInvalid):
            await logins.begin("a.b.c")

    face.call(act())
    assert not logins.is_secure


def test_a_session_of_another_issuer_counts_no_longer(face: HttpFace) -> None:
    app = face.app
    tokens = app.bearer_tokens(bound_to="127.0.0.1")
    sessions = BrowserSessions(app.stores, app.keys, tokens.clock, tokens.directory.tenants)

    async def act() -> None:
        token, _ = await development_token(
            app.settings, app.deployment.ports, TENANT, user=REQUESTER, agent=None, delegation=None, ttl_s=60
        )
        caller = await tokens.caller(token)
        cookie = await sessions.begin(caller, {"issuer": "https://issuer.example", "ends_at": caller.expires_at})
        with pytest.raises(SignatureInvalid, match="no longer"):
            await DevelopmentLogins(tokens, sessions).caller(cookie)

    face.call(act())
