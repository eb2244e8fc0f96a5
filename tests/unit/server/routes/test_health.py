"""A server that stops, or whose store does not answer, is not ready, and still lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from contextos.deployment.ports import ApprovalLogins
from contextos.server.routes import health
from contextos.trust.identity.hops import Partner
from contextos.trust.identity.oidc import TrustedIssuer
from tests.http_face import TENANT, HttpFace


@pytest.fixture(autouse=True)
def _is_configured_well(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests of this process configured is checked anew each minute, and is not what these are about."""
    monkeypatch.setattr(type(face.app.configuration), "latest", lambda _: ())


def test_a_server_is_ready_until_it_stops(face: HttpFace) -> None:
    assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
    face.api.state.draining.set()
    try:
        stopping = face.anonymous("GET", "/v1/ready")
        assert (stopping.status_code, stopping.json()["code"], stopping.headers["retry-after"]) == (
            503,
            "stopping",
            "1",
        )
        assert stopping.headers["connection"] == "close"
        assert face.anonymous("GET", "/v1/health").json() == {"status": "live"}
    finally:
        face.api.state.draining.clear()


def test_partners_and_logins_whose_keys_cannot_be_had_are_named(face: HttpFace) -> None:

    async def keys(_kid: str) -> dict[str, Any]:
        return {}

    down = {"https://login.example": False, "https://a.example": False, "https://b.example": False}
    issuers = {name: TrustedIssuer(name, "contextos") for name in down}
    logins, *others = (partial(down.__getitem__, name) for name in down)
    deployment, ports = face.app.deployment, face.app.deployment.ports
    partners = {
        name: Partner(issuers[name], (TENANT,), keys, silent)
        for name, silent in zip(list(down)[1:], others, strict=True)
    }
    login = ApprovalLogins(issuers["https://login.example"], keys, 300, logins)
    deployment.ports = replace(ports, partners=partners, approval_logins=login)
    try:
        assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
        for name in ("https://b.example", "https://login.example"):
            down |= dict.fromkeys(down, False) | {name: True}
            said = face.anonymous("GET", "/v1/ready")
            expected = {"status": "ready", "warnings": ["issuers"], "silent_issuers": [name]}
            assert (said.status_code, said.json()) == (200, expected)
    finally:
        deployment.ports = ports


def test_a_store_that_hangs_makes_a_server_unready_and_the_answer_does_not_hang(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging:
        async def due(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, str]]:
            await asyncio.Event().wait()
            yield "", ""

    monkeypatch.setattr(health, "MAX_READY_S", 0.01)
    monkeypatch.setattr(face.app, "stores", Hanging())
    unready = face.anonymous("GET", "/v1/ready")
    assert (unready.status_code, unready.headers["content-type"]) == (503, "application/problem+json")
    assert int(unready.headers["retry-after"]) >= 1
