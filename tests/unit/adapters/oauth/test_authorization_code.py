"""The authorization code flow of one client. What a provider does wrong is in `test_f51_browser_sessions.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from contextos.adapters.oauth.authorization_code import AuthorizationCode
from contextos.errors import InvalidInput, InvalidSettings, Problem, Unavailable
from tests.loopback import Answer, Asked, serving
from tests.world import run

TOKENS = {"id_token": "a.b.c", "access_token": "d.e.f", "token_type": "bearer"}


class Endpoint:
    """A token endpoint, and what it was asked."""

    def __init__(self) -> None:
        self.url, self.asked, self.said = "", [], json.dumps(TOKENS).encode()

    asked: list[Asked]

    def serve(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return 200, self.said, {}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    with serving(made.serve) as url:
        made.url = f"{url}/token"
        yield made


def flow(endpoint: Endpoint, secret: Any = None, **options: Any) -> AuthorizationCode:
    return AuthorizationCode(
        "https://a.example/authorize", endpoint.url, "us", "https://b.example/callback", secret, **options
    )


def test_a_browser_is_sent_with_what_binds_the_answer(endpoint: Endpoint) -> None:
    # The example of RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    url = flow(endpoint, scopes=("openid", "groups")).url(state="s", nonce="n", verifier=verifier)
    assert url.startswith("https://a.example/authorize?")
    assert dict(parse_qsl(urlsplit(url).query)) == {
        "response_type": "code",
        "client_id": "us",
        "redirect_uri": "https://b.example/callback",
        "scope": "openid groups",
        "state": "s",
        "nonce": "n",
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    }


def test_a_public_client_names_itself_and_one_with_a_secret_proves_itself(endpoint: Endpoint) -> None:
    issued = run(flow(endpoint).tokens("c+/=", verifier="v"))
    assert (issued.id_token, issued.access_token) == ("a.b.c", "d.e.f")
    assert "a.b.c" not in repr(issued)
    run(flow(endpoint, lambda: b"s/1").tokens("c+/=", verifier="v"))
    public, secret = endpoint.asked
    form = dict(parse_qsl(public.body.decode()))
    assert form == {
        "grant_type": "authorization_code",
        "code": "c+/=",
        "redirect_uri": "https://b.example/callback",
        "code_verifier": "v",
        "client_id": "us",
    }
    assert "Authorization" not in public.headers
    assert secret.headers["Authorization"] == "Basic dXM6cyUyRjE="
    assert "client_id" not in dict(parse_qsl(secret.body.decode()))


def test_a_secret_that_cannot_be_read_is_tried_later(endpoint: Endpoint) -> None:
    def missing() -> bytes:
        raise InvalidSettings(Problem("/browser_logins", "no_secret", "the file is empty", "fill it"))

    with pytest.raises(Unavailable, match="the file is empty"):
        run(flow(endpoint, missing).tokens("c", verifier="v"))
    assert endpoint.asked == []


def test_an_answer_that_does_not_end_is_given_up(endpoint: Endpoint) -> None:
    endpoint.said = b"a" * 200_000
    with pytest.raises(Unavailable, match="no whole answer"):
        run(flow(endpoint).tokens("c", verifier="v"))


@pytest.mark.parametrize("url", ["https://A.example/token", "https://a.example/../token", "token"])
def test_an_address_that_two_readers_take_differently_is_refused(url: str) -> None:
    for first, second in ((url, "https://a.example/token"), ("https://a.example/authorize", url)):
        with pytest.raises(InvalidInput):
            AuthorizationCode(first, second, "us", "https://b.example/callback", None)
