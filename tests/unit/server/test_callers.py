"""The scheme of a token is compared as RFC 9110 says, and an issuer that does not answer is no refusal."""

from __future__ import annotations

import pytest

from contextos.errors import Unavailable
from tests.http_face import REQUESTER, HttpFace


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_compared_without_case(face: HttpFace, scheme: str) -> None:
    answer = face.anonymous("GET", "/v1/runs", headers={"Authorization": f"{scheme}  {face.token(REQUESTER)} "})
    assert answer.status_code == 200


def test_a_token_that_cannot_be_checked_now_is_not_thrown_away(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(_self: object, _token: str) -> None:
        raise Unavailable("issuer", "login.internal.example does not answer", retry_after_ms=1_500)

    monkeypatch.setattr("contextos.workspace.logins.bearer.BearerTokens.caller", down)
    answer = face.send("GET", "/v1/runs")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "login.internal" not in answer.text
