"""The setting `browser_logins`: how people log in with a browser, at the issuer whose users the directory knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Final

from contextos.port_settings.checks import bad, check_https, check_internal, check_made, check_text, made_of, one_source

MAX_SESSION_S: Final = 86_400
_ORIGIN: Final = re.compile(r"https?://[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[1-9][0-9]{0,4})?")


@dataclass(frozen=True, slots=True)
class BrowserLoginsSetting:
    """Login sessions of browsers. `origin` is where browsers see the service, and `client_id` as whom the issuer knows
    it; the issuer sends the browser back to `<origin>/callback`.

    `authorization_url` and `token_url` are the endpoints of the issuer that `[directory]` names. A client without a
    secret is a public one. `scopes` are asked for at login; `openid` is among them. A session ends with the token that
    it rests on, and after `max_session_s` seconds at the latest. `internal`: a person said that `token_url` is at a
    private address.
    """

    origin: str
    client_id: str
    authorization_url: str
    token_url: str
    secret_file: str = ""
    secret_env: str = ""
    scopes: tuple[str, ...] = ("openid",)
    max_session_s: int = 28_800
    internal: bool = False

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the service over TLS. Without it, only this machine can."""
        return self.origin.startswith("https://")

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_https(self.origin, f"{at}/origin")
        default_port = ":443" if self.is_secure else ":80"
        if not _ORIGIN.fullmatch(self.origin) or self.origin.endswith(default_port):
            detail = "this is not an origin as browsers write it"
            raise bad(f"{at}/origin", detail, "write `https://host[:port]`, in lower case, without a path")
        check_text(self.client_id, f"{at}/client_id")
        check_https(self.authorization_url, f"{at}/authorization_url")
        check_https(self.token_url, f"{at}/token_url")
        if self.secret_file or self.secret_env:
            one_source(self.secret_file, self.secret_env, at, "secret")
        fits = isinstance(self.scopes, tuple) and all(isinstance(one, str) and one for one in self.scopes)
        if not fits or "openid" not in self.scopes or any(" " in one for one in self.scopes):
            raise bad(f"{at}/scopes", "this is not a list of scopes with `openid` in it", "list `openid` and others")
        if type(self.max_session_s) is not int or not 1 <= self.max_session_s <= MAX_SESSION_S:
            detail = f"this is not a whole number of seconds from 1 to {MAX_SESSION_S}"
            raise bad(f"{at}/max_session_s", detail, "give one within these bounds")
        check_internal(self.internal, at)


read_browser_logins: Final = partial(made_of, BrowserLoginsSetting, at="/browser_logins")
check_browser_logins: Final = partial(check_made, BrowserLoginsSetting, "/browser_logins")
