"""Keys of a key service on a real loopback server: pinned, verified, and never waited for without a bound."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from contextos.adapters.remote_keys import MAX_MESSAGE_BYTES
from contextos.contracts.ports.outside import Keys
from contextos.errors import InvalidInput, InvalidSettings, Unavailable
from contextos.trust.seal import PURPOSES, open_sealed, seal
from tests.kms import TOKEN, KeyService, key_service, pinned, private


@pytest.fixture
def service() -> Iterator[KeyService]:
    with key_service() as made:
        yield made


def test_the_service_signs_for_each_purpose_with_its_key(service: KeyService) -> None:
    keys: Keys = service.opened()
    for purpose in PURPOSES:
        kid, signature = keys.sign(purpose, b"x")
        assert keys.kids(purpose) == [kid]
        assert [other for other in PURPOSES if keys.verify(other, kid, b"x", signature)] == [purpose]
        assert keys.public_key(purpose, kid) == private(f"{purpose}/versions/1").public_key().public_bytes_raw()
    assert open_sealed(seal("text/plain", b"x", keys, "pack"), keys, "pack", ["text/plain"]) == b"x"
    paths = [path for method, path in service.requests if method == "GET"]
    assert paths[::-1] == [f"/v1/keys/{purpose}/versions/1/publicKey" for purpose in PURPOSES], (
        "each was compared at the start"
    )


def test_a_retired_key_verifies_what_it_signed_and_signs_nothing(service: KeyService) -> None:
    first = service.opened()
    old, signature = first.sign("head", b"x")
    [head, *others] = pinned()
    name = "head/versions/2"
    new = replace(head, name=name, public_key=private(name).public_key().public_bytes_raw().hex())
    keys = service.opened(keys=(replace(head, retired_at_us=1_000), new, *others))
    kid, _ = keys.sign("head", b"x")
    assert list(keys.kids("head")) == [kid, old]
    assert keys.verify("head", old, b"x", signature, at_us=1_000)
    assert not keys.verify("head", old, b"x", signature, at_us=1_001)


def test_a_fresh_token_is_used_for_each_request(service: KeyService) -> None:
    tokens = [TOKEN] * len(PURPOSES) + ["expired", TOKEN]
    keys = service.opened(token=lambda: tokens.pop(0))
    with pytest.raises(Unavailable, match="401"):
        keys.sign("head", b"x")
    assert keys.sign("head", b"x")


def test_a_purpose_without_a_key_is_verified_nowhere_and_signed_by_nobody(service: KeyService) -> None:
    keys = service.opened(keys=tuple(one for one in pinned() if one.purpose != "pack"))
    assert list(keys.kids("pack")) == []
    with pytest.raises(InvalidSettings, match="no key to sign"):
        keys.sign("pack", b"x")


def test_a_message_that_no_service_signs_is_not_sent(service: KeyService) -> None:
    keys, before = service.opened(), len(service.requests)
    with pytest.raises(InvalidInput, match="at most"):
        keys.sign("export", b"x" * (MAX_MESSAGE_BYTES + 1))
    assert len(service.requests) == before


def test_a_service_that_hangs_is_given_up(service: KeyService) -> None:
    keys = service.opened(timeout_s=0.2)

    def hang(_method: str, _path: str) -> None:
        time.sleep(1)

    service.fault = hang
    with pytest.raises(Unavailable, match="took more than"):
        keys.sign("head", b"x")


def test_a_service_that_comes_back_signs_again(service: KeyService) -> None:
    keys = service.opened()
    service.fault = lambda _method, _path: (503, b"")
    with pytest.raises(Unavailable, match="503"):
        keys.sign("head", b"x")
    service.fault = lambda _method, _path: None
    assert keys.sign("head", b"x")


def test_a_service_that_is_not_there_stops_the_start() -> None:
    with key_service() as made:
        pass
    with pytest.raises(Unavailable):
        made.opened()
