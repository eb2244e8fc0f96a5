"""Sets and reads the cookies of browsers that log in here, and checks the origin of a request that has one.

Over TLS the names begin with `__Host-`: browsers then refuse a cookie that another host or path set, or that came
without TLS. Without TLS, which is for development on one machine, the names lack the prefix, and browsers do
not check this.

A request with a session's cookie counts only from a page of this service. `Sec-Fetch-Site` and `Origin`, which no page
can set, must not say otherwise. A request that changes something needs one of the two, and the token of the session,
which only a page of this service can read.
Source: RFC 6265bis; OWASP, "Cross-Site Request Forgery Prevention"; W3C, "Fetch Metadata Request Headers".
"""

from __future__ import annotations

import hmac
from typing import Final

from fastapi import Request, Response

from contextos.server.problems import HttpProblem
from contextos.workspace.logins.browser_logins import BrowserLogins
from contextos.workspace.logins.development_logins import DevelopmentLogins
from contextos.workspace.logins.sessions import csrf_token_of

SESSION_COOKIE: Final = "__Host-contextos-session"
LOGIN_COOKIE: Final = "__Host-contextos-login"
CSRF_HEADER: Final = "X-CSRF-Token"
LOGIN_S: Final = 600
"""The seconds for which a browser keeps the cookie that it needs when it comes back from the issuer."""
_HOST: Final = "__Host-"
Logins = BrowserLogins | DevelopmentLogins
_CHANGES_NOTHING: Final = frozenset({"GET", "HEAD"})


def cookie_of(request: Request, logins: Logins, name: str) -> str | None:
    """Return the value of a cookie; None if the request has none, and "" (which is never valid) if it has several of
    the name, because another host of the domain can have set one.
    """
    cookie_name = name if logins.is_secure else name.removeprefix(_HOST)
    pairs = [pair.strip().partition("=") for header in request.headers.getlist("cookie") for pair in header.split(";")]
    values = [value for key, _, value in pairs if key == cookie_name]
    if not values:
        return None
    return values[0] if len(values) == 1 else ""


def set_cookie(response: Response, logins: Logins, name: str, value: str, max_age_s: int) -> None:
    """Set a cookie for this host alone, which no script can read. With an empty value the browser deletes it."""
    secure = logins.is_secure
    response.set_cookie(
        name if secure else name.removeprefix(_HOST),
        value,
        max_age=max_age_s if value else 0,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )


def check_same_origin(request: Request, logins: Logins, cookie: str) -> None:
    """Raise `HttpProblem` (403) if a header names another page, or a change names no page of ours or no CSRF token."""
    site, origin = (",".join(request.headers.getlist(name)) for name in ("sec-fetch-site", "origin"))
    changes = request.method not in _CHANGES_NOTHING
    own_origin = logins.origin(request.headers.get("host", ""))
    is_from_us = site == "same-origin" or origin == own_origin
    # `none`: the person typed the address, or opened it from a bookmark.
    fits = site in ("", "same-origin", *(() if changes else ("none",))) and origin in ("", own_origin) and own_origin
    if not fits or (changes and not is_from_us):
        raise HttpProblem(403, "cross_site", "with a cookie a request counts only from a page of this service")
    if changes:
        token = ",".join(request.headers.getlist(CSRF_HEADER))
        if not hmac.compare_digest(token.encode(), csrf_token_of(cookie).encode()):
            detail = f"send the `csrf_token` of `GET /v1/caller` as `{CSRF_HEADER}`"
            raise HttpProblem(403, "csrf_token", detail)
