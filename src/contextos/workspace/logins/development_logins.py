"""`DevelopmentLogins`: people use the console of a development workspace without an issuer.

A person sends one of the tokens that `contextos serve` prints, and the cookie of their session is that token. It counts
where development tokens count (`development_fault`), as long as the token does, and nothing is stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from contextos.trust.identity.callers import Caller
    from contextos.workspace.logins.bearer import BearerTokens

_LOOPBACK: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class DevelopmentLogins:
    """The sessions of browsers in a development workspace. Make it where `tokens.development` is true."""

    tokens: BearerTokens
    is_secure: bool = False

    def origin(self, host: str) -> str:
        """Return the origin of the pages that a browser reads at `host` (`NAME:PORT`). It is empty for another machine:
        a page of a name that leads here by chance is not a page of this service.
        """
        return f"http://{host}" if _LOOPBACK.fullmatch(host) else ""

    async def caller(self, cookie: str) -> Caller:
        """Return the caller of a session. Raises `SignatureInvalid` or `NotFound` as `BearerTokens.caller`."""
        return await self.tokens.caller(cookie)

    async def end(self, cookie: str) -> None:
        """End a session. Nothing is stored, so the browser forgets its cookie and the token still counts."""
