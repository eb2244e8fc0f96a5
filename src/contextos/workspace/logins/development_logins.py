"""`DevelopmentLogins`: people use the console of a development workspace without an issuer.

A person sends one of the tokens that `contextos serve` prints, and gets a session: what the token proves, as long as
the token does. The token is not kept, and a cookie is worth nothing but here. It counts where development tokens count
(`development_fault`).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from contextos.errors import SignatureInvalid
from contextos.trust.identity.development import DEVELOPMENT_ISSUER, DevelopmentToken, verify_development_token
from contextos.trust.identity.refusals import logged_refusal

if TYPE_CHECKING:
    from contextos.trust.identity.callers import Caller
    from contextos.workspace.logins.bearer import BearerTokens
    from contextos.workspace.logins.sessions import BrowserSessions

_LOOPBACK: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class DevelopmentLogins:
    """The sessions of browsers in a development workspace. Make it where `tokens.development` is true."""

    tokens: BearerTokens
    sessions: BrowserSessions
    is_secure: bool = False

    def origin(self, host: str) -> str:
        """Return the origin of the pages that a browser reads at `host` (`NAME:PORT`). It is empty for another machine:
        a page of a name that leads here by chance is not a page of this service.
        """
        return f"http://{host}" if _LOOPBACK.fullmatch(host) else ""

    async def begin(self, token: str, *, replaces: str = "") -> str:
        """Begin a session with a development token, and return its cookie. `replaces` is the earlier cookie of the
        browser; its session ends.

        Raises:
            SignatureInvalid: it is not a development token of this workspace, or its user is not known here now.
            Unavailable, Conflict: as `BrowserSessions.begin`.
        """
        with logged_refusal(token):
            verified = verify_development_token(token, self.tokens.keys, now_us=self.tokens.clock.now_us())
            caller = await self.tokens.development_caller(verified)
        proved = {"issuer": DEVELOPMENT_ISSUER, "ends_at": verified.expires_at, "proved": asdict(verified)}
        cookie = await self.sessions.begin(caller, proved)
        await self.end(replaces)
        return cookie

    async def caller(self, cookie: str) -> Caller:
        """Return the caller of a session.

        Raises:
            SignatureInvalid: there is no such session now, or its user is not known here now.
            Unavailable: the store does not answer.
        """
        tenant_id, session = await self.sessions.get(cookie)
        if session["issuer"] != DEVELOPMENT_ISSUER:
            raise SignatureInvalid("the session is of an issuer that counts no longer")
        proved = session["proved"]
        token = DevelopmentToken(**{**proved, "roles": tuple(proved["roles"]), "scopes": tuple(proved["scopes"])})
        return await self.tokens.development_caller(token, tenant_id=tenant_id)

    async def end(self, cookie: str) -> None:
        """End the session of a cookie, if there is one. Raises as `BrowserSessions.end`."""
        await self.sessions.end(cookie)
