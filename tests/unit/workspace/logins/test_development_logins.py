"""Sessions of browsers in a development workspace: only on this machine, and as long as the token counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos.errors import SignatureInvalid
from contextos.workspace.logins.development_logins import DevelopmentLogins


class Tokens:
    async def caller(self, token: str) -> Any:
        if token != "good":
            raise SignatureInvalid("it is not a token")
        return "ana"


LOGINS = DevelopmentLogins(Tokens())  # type: ignore[arg-type]  # what it needs of the verifier


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:8765", "[::1]:8765"])
def test_a_page_of_this_machine_is_a_page_of_the_service(host: str) -> None:
    assert LOGINS.origin(host) == f"http://{host}"


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "127.0.0.2"]
)
def test_a_name_that_leads_here_by_chance_is_not(host: str) -> None:
    assert LOGINS.origin(host) == ""


def test_the_cookie_is_the_token() -> None:
    assert asyncio.run(LOGINS.caller("good")) == "ana"
    with pytest.raises(SignatureInvalid):
        asyncio.run(LOGINS.caller("bad"))
    asyncio.run(LOGINS.end("good"))
    assert not LOGINS.is_secure
