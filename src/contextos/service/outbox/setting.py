"""The setting `[outbox]`: where notices of runs are sent, as webhooks and as mails.

Refuses an unknown name, a wrong value, a destination that is asked without encryption outside of this machine, and a
secret in the settings: a secret is named by its file or environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, TypeAlias

from contextos.contracts.facts import name_remedy
from contextos.errors import InvalidSettings, Problem
from contextos.service.outbox.notices import NOTICE_TYPES, RUN_IN_LINK

MAX_NOTICE_ATTEMPTS: Final = 10_000
MAX_TIMEOUT_S: Final = 25
"""Below the time after which a handler of events is cancelled."""
MAX_REMIND_AFTER_S: Final = 2_592_000
SECURITY: Final = ("tls", "starttls", "none")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_URL: Final = re.compile(r"https?://[a-z0-9][a-z0-9.:-]*(/[!-~]*)?")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_LOOPBACK: Final = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class WebhookSetting:
    """A webhook: notices of the tenant `tenant` are posted to `url` and signed as Standard Webhooks says.

    `name` names the destination for ever: its place in the events of the tenant is stored under it. The secrets (each
    `whsec_` and Base64, apart by blanks) are in a file or an environment variable. `link` is the page of a run, with
    `{run}` in it. `internal`: a person said that the URL is at a loopback or private address. `remind_after_s` is how
    many seconds a question waits before it is sent again; 0: never. `timeout_s` bounds each attempt, in seconds.
    """

    name: str
    tenant: str
    url: str
    link: str
    secret_file: str = ""
    secret_env: str = ""
    types: tuple[str, ...] = NOTICE_TYPES
    internal: bool = False
    remind_after_s: int = 0
    max_attempts: int = 300
    timeout_s: int = 10

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        _check_destination(self, at)
        _check_url(self.url, f"{at}/url")
        if type(self.internal) is not bool:
            raise _bad(f"{at}/internal", "this is neither true nor false", "state whether its address is internal")
        if self.url.startswith("http://") and not self.internal:
            raise _bad(f"{at}/url", "the connection is not encrypted", "write `https://`")
        _check_secret(self.secret_file, self.secret_env, at, "secret")


@dataclass(frozen=True, slots=True)
class MailSetting:
    """Mails: notices of the tenant `tenant` from `sender` to the addresses `to`, by the server `host`.

    `security` is `tls`, `starttls`, or `none` for a server on this machine. With `user` the server asks for a password,
    which is in a file or an environment variable. The other fields are as those of `WebhookSetting`.
    """

    name: str
    tenant: str
    host: str
    sender: str
    to: tuple[str, ...]
    link: str
    port: int = 465
    security: str = "tls"
    user: str = ""
    password_file: str = ""
    password_env: str = ""
    types: tuple[str, ...] = NOTICE_TYPES
    remind_after_s: int = 0
    max_attempts: int = 300
    timeout_s: int = 10

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        _check_destination(self, at)
        if not isinstance(self.host, str) or not _NAME.fullmatch(self.host):
            raise _bad(f"{at}/host", "this is not the name of a host", "write it without a port")
        _check_number(self.port, f"{at}/port", 65_535)
        if self.security not in SECURITY:
            raise _bad(f"{at}/security", "this is not a kind of security", f"use one of {', '.join(SECURITY)}")
        if self.security == "none" and self.host not in _LOOPBACK:
            raise _bad(f"{at}/security", "the connection is not encrypted", "use `tls` or `starttls`")
        if not isinstance(self.to, tuple) or not self.to:
            raise _bad(f"{at}/to", "nobody is listed", "list addresses")
        for place, address in (("sender", self.sender), *((f"to/{at_}", one) for at_, one in enumerate(self.to))):
            if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
                raise _bad(f"{at}/{place}", "this is not a mail address", "write it like `ann@acme.example`")
        if self.user:
            _check_secret(self.password_file, self.password_env, at, "password")
        elif self.user != "" or self.password_file or self.password_env:
            raise _bad(f"{at}/user", "a password is for a user", "name the user, or leave the password out")


@dataclass(frozen=True, slots=True)
class OutboxSetting:
    """Every destination of notices."""

    webhooks: tuple[WebhookSetting, ...] = ()
    mails: tuple[MailSetting, ...] = ()


NoticeDestination: TypeAlias = "WebhookSetting | MailSetting"
_KINDS: Final[Mapping[str, type[NoticeDestination]]] = {"webhooks": WebhookSetting, "mails": MailSetting}


def read_outbox(value: Any) -> OutboxSetting:
    """Return the table `outbox` of `contextos.toml`. Raises `InvalidSettings`."""
    if not isinstance(value, dict) or not all(isinstance(one, list) for one in value.values()):
        raise _bad("/outbox", "this is not a table of lists", "write `[[outbox.webhooks]]` or `[[outbox.mails]]`")
    made: dict[str, Any] = {}
    for name, listed in value.items():
        if name not in _KINDS:
            raise _bad(f"/outbox/{name[:80]}", "this is not a setting here", name_remedy(name, _KINDS))
        made[name] = tuple(_read(_KINDS[name], one, f"/outbox/{name}/{at}") for at, one in enumerate(listed))
    return OutboxSetting(**made)


def check_outbox(value: Any) -> None:
    """Check the setting `outbox`, however it was made. Raises `InvalidSettings`."""
    if not isinstance(value, OutboxSetting):
        raise _bad("/outbox", "this is not an `OutboxSetting`", "give one, or None")
    names = set()
    for kind in _KINDS:
        for at, one in enumerate(getattr(value, kind)):
            if not isinstance(one, _KINDS[kind]):
                raise _bad(f"/outbox/{kind}/{at}", "this is not a destination", f"give a `{_KINDS[kind].__name__}`")
            one.check(f"/outbox/{kind}/{at}")
            if (one.tenant, one.name) in names:
                raise _bad(f"/outbox/{kind}/{at}/name", "another destination has this name", "use another one")
            names.add((one.tenant, one.name))


def _read(kind: type[NoticeDestination], table: Any, at: str) -> NoticeDestination:
    known = {one.name: one for one in fields(kind)}
    if not isinstance(table, dict):
        raise _bad(at, "this is not a table", f"give a table of {', '.join(known)}")
    for name in table.keys() - known.keys():
        problem = Problem(
            f"{at}/{name[:80]}", "unknown_setting", "this is not a setting here", name_remedy(name, known)
        )
        raise InvalidSettings(problem)
    for name, one in known.items():
        if name not in table and one.default is MISSING:
            raise InvalidSettings(Problem(f"{at}/{name}", "missing", f"`{name}` is missing", "add it"))
    values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in table.items()}
    return kind(**values)


def _check_destination(one: NoticeDestination, at: str) -> None:
    """Check what every destination has."""
    if not isinstance(one.name, str) or not _NAME.fullmatch(one.name):
        raise _bad(f"{at}/name", "this is not a name", "use letters, digits, `_`, `.` and `-`")
    if not isinstance(one.tenant, str) or not one.tenant:
        raise _bad(f"{at}/tenant", "this is not a tenant", "name the tenant whose runs it is about")
    _check_url(one.link, f"{at}/link")
    if one.link.count(RUN_IN_LINK) != 1 or set(one.link.replace(RUN_IN_LINK, "")) & set("{}"):
        detail = f"the link has to have `{RUN_IN_LINK}` in it once"
        raise _bad(f"{at}/link", detail, f"write `https://console.acme.example/runs/{RUN_IN_LINK}`")
    if not isinstance(one.types, tuple) or not one.types:
        raise _bad(f"{at}/types", "no type is listed", f"list some of {', '.join(NOTICE_TYPES)}")
    for number, kind in enumerate(one.types):
        if kind not in NOTICE_TYPES:
            raise _bad(f"{at}/types/{number}", "this is not a type of a notice", name_remedy(str(kind), NOTICE_TYPES))
    _check_number(one.max_attempts, f"{at}/max_attempts", MAX_NOTICE_ATTEMPTS)
    _check_number(one.timeout_s, f"{at}/timeout_s", MAX_TIMEOUT_S)
    if one.remind_after_s != 0:
        _check_number(one.remind_after_s, f"{at}/remind_after_s", MAX_REMIND_AFTER_S)
    if (one.remind_after_s != 0) != ("question.reminded" in one.types) and one.types != NOTICE_TYPES:
        detail = "`remind_after_s` and the type `question.reminded` need each other"
        raise _bad(f"{at}/remind_after_s", detail, "give both, or none")


def _check_secret(file: Any, variable: Any, at: str, what: str) -> None:
    if not isinstance(file, str) or not isinstance(variable, str) or bool(file) == bool(variable):
        detail = f"the {what} comes from exactly one of `{what}_file` and `{what}_env`"
        raise _bad(at, detail, "name the one that holds it; the secret itself has no place in the settings")
    if "\0" in file:
        raise _bad(f"{at}/{what}_file", "this is not a path", "name a file")
    if variable and not _VARIABLE.fullmatch(variable):
        raise _bad(f"{at}/{what}_env", "this is not the name of an environment variable", "write it like `HOOK_SECRET`")


def _check_url(url: Any, at: str) -> None:
    if not isinstance(url, str) or not _URL.fullmatch(url) or "#" in url:
        raise _bad(at, "this is not a URL", "write `https://host/path` in ASCII, without a user")


def _check_number(value: Any, at: str, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise _bad(at, f"this is not a whole number from 1 to {most}", "give one within these bounds")


def _bad(at: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem(at, "bad_setting", detail, remedy))
