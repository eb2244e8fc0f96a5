"""The keys of an issuer are fetched from a real server, kept for a while, and never used when they are old."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextos.adapters.jwks import AGAIN_US, FAILED_US, KEEP_US, FileJwks, HttpJwks, KeptJwks, PinnedJwks
from contextos.errors import InvalidInput, InvalidSettings, Unavailable
from contextos.trust.identity.jwt import token_key_id
from contextos.trust.identity.oidc import verify_oidc_token
from tests.issuer import NOW_S, TRUSTED, Issuer, issuer, jwks, keys, token


class StillClock:
    def __init__(self) -> None:
        self.at_us = NOW_S * 1_000_000

    def now_us(self) -> int:
        return self.at_us


@pytest.fixture
def server() -> Iterator[Issuer]:
    with issuer() as made:
        yield made


def test_a_token_is_verified_with_fetched_keys(server: Issuer) -> None:
    clock = StillClock()
    found, said = HttpJwks(server.url, clock), token()
    keys = asyncio.run(found.with_key(token_key_id(said)))
    assert verify_oidc_token(said, TRUSTED, keys, now_us=clock.now_us()).subject == "user_9041"


def test_keys_are_kept_and_invented_ids_cause_no_requests(server: Issuer) -> None:
    clock = StillClock()
    found = HttpJwks(server.url, clock)

    def ask(kid: str) -> int:
        asyncio.run(found.with_key(kid))
        return server.requests

    assert [ask("ec-1"), ask("ec-1"), *(ask(f"made-up-{n}") for n in range(50))] == [1] * 52
    clock.at_us += AGAIN_US
    assert [ask("ec-1"), ask("ec-3"), ask("ec-3")] == [1, 2, 2], "a new key is looked for again"
    clock.at_us += KEEP_US
    assert ask("ec-1") == 3


def test_old_keys_are_not_used_when_the_issuer_is_silent(server: Issuer) -> None:
    clock = StillClock()
    found = HttpJwks(server.url, clock)
    asyncio.run(found.with_key("ec-1"))
    server.answer = lambda: (503, b"", {})
    clock.at_us += AGAIN_US
    with pytest.raises(Unavailable):
        asyncio.run(found.with_key("made-up"))
    assert asyncio.run(found.with_key("ec-1")), "an invented key id makes nobody else wait"
    clock.at_us += KEEP_US
    with pytest.raises(Unavailable, match="503"):
        asyncio.run(found.with_key("ec-1"))


@pytest.mark.parametrize(
    "answer",
    [
        (404, b"", {}),
        (302, b"", {"Location": "/elsewhere"}),
        (200, b"not json", {}),
        (200, b"[]", {}),
        (200, b'{"keys": 7}', {}),
        (200, b" " * 300_000, {}),
        (200, b'{"keys": []}', {}),
        (200, json.dumps({"keys": [{"kty": "oct", "kid": "a", "k": "c2VjcmV0"}]}).encode(), {}),
        (200, json.dumps({"keys": [keys()["ec-1"].as_dict(private=True)]}).encode(), {}),
        (200, b'{"jwks_uri": "https://login.acme.example/keys", "issuer": "x", "more": 1}', {}),
    ],
    ids=[
        "absent",
        "redirect",
        "no JSON",
        "not an object",
        "no keys",
        "too large",
        "an empty set",
        "a shared secret",
        "a private key",
        "discovery",
    ],
)
def test_another_answer_is_no_key(server: Issuer, answer: tuple[int, bytes, dict[str, str]]) -> None:
    server.answer = lambda: answer
    with pytest.raises(Unavailable):
        asyncio.run(HttpJwks(server.url, StillClock()).with_key("ec-1"))


def test_an_issuer_that_hangs_is_given_up(server: Issuer) -> None:
    def hang() -> tuple[int, bytes, dict[str, str]]:
        time.sleep(1)
        return 200, json.dumps(jwks()).encode(), {}

    server.answer = hang
    with pytest.raises(Unavailable, match="no whole answer"):
        asyncio.run(HttpJwks(server.url, StillClock(), timeout_s=0.1).with_key("ec-1"))


def test_an_issuer_that_is_gone_is_unavailable() -> None:
    with issuer() as made:
        url = made.url
    with pytest.raises(Unavailable):
        asyncio.run(HttpJwks(url, StillClock()).with_key("ec-1"))


def test_a_pinned_set_needs_no_network() -> None:
    assert asyncio.run(PinnedJwks(jwks()).with_key("ec-1")) == jwks()
    with pytest.raises(InvalidInput):
        PinnedJwks({"keys": 7})


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSettings):
        HttpJwks("http://[::1", StillClock())


def test_many_callers_at_once_are_one_request(server: Issuer) -> None:
    found = HttpJwks(server.url, StillClock())

    async def all_at_once() -> None:
        await asyncio.gather(*(found.with_key("ec-1") for _ in range(50)))

    asyncio.run(all_at_once())
    assert server.requests == 1


def test_an_issuer_that_failed_is_not_asked_again_at_once(server: Issuer) -> None:
    clock = StillClock()
    found = HttpJwks(server.url, clock)
    server.answer = lambda: (503, b"", {})
    for _ in range(20):
        with pytest.raises(Unavailable, match="503"):
            asyncio.run(found.with_key("ec-1"))
    assert server.requests == 1
    clock.at_us += FAILED_US
    with pytest.raises(Unavailable):
        asyncio.run(found.with_key("ec-1"))
    assert server.requests == 2


def test_after_a_fetch_that_nobody_waited_for_the_issuer_is_not_asked_at_once() -> None:
    asked, clock = [], StillClock()

    async def fetch() -> bytes:
        asked.append(clock.at_us)
        await asyncio.Event().wait()
        return b""

    async def act() -> None:
        found = KeptJwks(fetch, clock, issuer="https://login.acme.example")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(found.with_key("ec-1"), 0.01)
        assert found.is_silent(), "nobody knows its keys"
        with pytest.raises(Unavailable, match=r"login\.acme\.example` is unavailable: nobody waited"):
            await asyncio.wait_for(found.with_key("ec-1"), 60)
        assert len(asked) == 1

    asyncio.run(act())


def test_while_the_issuer_is_down_nobody_says_that_a_key_does_not_exist(server: Issuer) -> None:
    """A new key of the issuer is asked for while it does not answer: that is an outage, and not a wrong token."""
    clock = StillClock()
    found = HttpJwks(server.url, clock, issuer="https://login.acme.example")
    asyncio.run(found.with_key("ec-1"))
    server.answer = lambda: (503, b"", {})
    clock.at_us += AGAIN_US
    for _ in range(20):
        with pytest.raises(Unavailable, match=r"issuer https://login\.acme\.example"):
            asyncio.run(found.with_key("rotated"))
    assert server.requests == 2, "and it is asked once"
    assert asyncio.run(found.with_key("ec-1"))
    assert not found.is_silent(), "what is kept still counts"
    clock.at_us += KEEP_US
    with pytest.raises(Unavailable):
        asyncio.run(found.with_key("ec-1"))
    assert found.is_silent()
    server.answer = Issuer().answer
    clock.at_us += FAILED_US
    assert asyncio.run(found.with_key("ec-1"))
    assert not found.is_silent()


@pytest.mark.parametrize("sent", ["no-store", "max-age=0", "max-age=86400", "private, must-revalidate"])
def test_no_cache_header_of_the_issuer_changes_when_it_is_asked(server: Issuer, sent: str) -> None:
    clock = StillClock()
    found = HttpJwks(server.url, clock)
    server.answer = lambda: (200, json.dumps(jwks()).encode(), {"Cache-Control": sent, "Age": "9"})
    for _ in range(3):
        asyncio.run(found.with_key("ec-1"))
    assert server.requests == 1
    clock.at_us += KEEP_US
    asyncio.run(found.with_key("ec-1"))
    assert server.requests == 2


@pytest.mark.parametrize("url", ["http://10.0.0.7/jwks", "https://10.0.0.7/jwks", "https://169.254.169.254/jwks"])
def test_keys_are_at_no_private_address_that_nobody_stated(url: str) -> None:
    with pytest.raises(InvalidSettings, match="not a public address"):
        HttpJwks(url, StillClock())
    assert HttpJwks("https://10.0.0.7/jwks", StillClock(), internal=True)


def test_keys_in_a_file_are_read_again_when_it_was_renewed(tmp_path: Path) -> None:
    clock, file = StillClock(), tmp_path / "bundle.json"
    found = FileJwks(file, clock)
    with pytest.raises(Unavailable, match="cannot be read"):
        asyncio.run(found.with_key("ec-1"))
    clock.at_us += FAILED_US
    listed = {"keys": [one for one in jwks()["keys"] if one["kid"] == "ec-1"]}
    file.write_text(json.dumps(listed))
    assert asyncio.run(found.with_key("ec-1")) == listed
    file.write_text(json.dumps(jwks()))
    assert asyncio.run(found.with_key("ec-2")) == listed, "an unknown key is looked for, but not at once again"
    clock.at_us += AGAIN_US
    assert asyncio.run(found.with_key("ec-2")) == jwks()


def test_a_failure_that_nobody_tried_again_is_not_reported_as_of_now(server: Issuer) -> None:
    clock = StillClock()
    found = HttpJwks(server.url, clock)
    server.answer = lambda: (503, b"", {})
    with pytest.raises(Unavailable):
        asyncio.run(found.with_key("ec-1"))
    clock.at_us += KEEP_US - 1
    assert found.is_silent()
    clock.at_us += 1
    assert not found.is_silent(), "the issuer may be back, and no token came"
