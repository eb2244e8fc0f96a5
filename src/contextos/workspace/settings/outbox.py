"""The table `outbox`: where notices of runs are sent, as webhooks and as mails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from contextos.contracts.setting_types import (
    AnyText,
    Fault,
    Fits,
    Flag,
    SettingTable,
    SomeOf,
    SomeText,
    String,
    Variable,
    matches,
    means,
    one_of,
    secret_faults,
    tables,
    whole,
)
from contextos.service.outbox.notices import NOTICE_TYPES, RUN_IN_LINK

MAX_NOTICE_ATTEMPTS: Final = 10_000
MAX_TIMEOUT_S: Final = 25
"""The longest timeout of a destination, in seconds: less than the time after which a handler of events is cancelled."""
MAX_REMIND_AFTER_S: Final = 2_592_000
SECURITY: Final = ("tls", "starttls", "none")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_URL: Final = re.compile(r"https?://[a-z0-9][a-z0-9.:-]*(/[!-\"$-~]*)?")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_LOOPBACK: Final = ("127.0.0.1", "localhost")


def _has_run(link: str) -> bool:
    return link.count(RUN_IN_LINK) == 1 and not set(link.replace(RUN_IN_LINK, "")) & set("{}")


_Url = Annotated[String, matches(_URL, "this is not a URL", "write `https://host/path` in ASCII, without a user")]
_Address = Annotated[String, matches(_ADDRESS, "this is not a mail address", "write it like `ann@acme.example`")]
_Name = Annotated[
    String,
    matches(_NAME, "this is not a name", "use letters, digits, `_`, `.` and `-`"),
    means("the name of the destination, for ever: how far it is, is stored under it"),
]
_Tenant = Annotated[SomeText, means("the tenant whose runs it is about")]
_Link = Annotated[
    _Url,
    Fits(
        f"the link has to have `{RUN_IN_LINK}` in it once",
        f"write `https://console.acme.example/runs/{RUN_IN_LINK}`",
        _has_run,
    ),
    means("the page of a run of your own, with `{run}` in it"),
]
_Types = Annotated[
    SomeOf[Annotated[String, one_of(NOTICE_TYPES, "a type of a notice")]], means("which notices are sent")
]
_RemindAfter = Annotated[
    int, whole(0, MAX_REMIND_AFTER_S, "seconds after which a question that still waits is sent once more; 0: never")
]
_Attempts = Annotated[int, whole(1, MAX_NOTICE_ATTEMPTS, "attempts after which a notice is given up, on record")]
_Timeout = Annotated[int, whole(1, MAX_TIMEOUT_S, "seconds after which an attempt has failed")]


@dataclass(frozen=True, slots=True)
class WebhookSetting(SettingTable):
    """A webhook: notices of one tenant are posted to a URL and signed as the Standard Webhooks specification says."""

    name: _Name
    tenant: _Tenant
    url: Annotated[
        _Url, means("where notices are posted; `https://`, or `http://` on this machine if it is `internal`")
    ]
    link: _Link
    secret_file: Annotated[
        AnyText, means("the file with the secrets, read for each notice: each `whsec_` and Base64, apart by blanks")
    ] = ""
    secret_env: Annotated[
        Variable, means("the environment variable that holds them; exactly one of the two is given")
    ] = ""
    types: _Types = NOTICE_TYPES
    internal: Annotated[Flag, means("whether it is at a loopback or private address")] = False
    remind_after_s: _RemindAfter = 0
    max_attempts: _Attempts = 300
    timeout_s: _Timeout = 10

    def faults(self) -> Iterator[Fault]:
        if self.url.startswith("http://") and not self.internal:
            yield Fault(("url",), "the connection is not encrypted", "write `https://`")
        yield from secret_faults(self, "secret")
        yield from _reminder_faults(self)


@dataclass(frozen=True, slots=True)
class MailSetting(SettingTable):
    """Mails: notices of one tenant are sent through a mail server."""

    name: _Name
    tenant: _Tenant
    host: Annotated[
        String, matches(_NAME, "this is not the name of a host", "write it without a port"), means("the mail server")
    ]
    sender: Annotated[_Address, means("the address of the sender")]
    to: Annotated[SomeOf[_Address], means("the addresses that get every notice")]
    link: _Link
    port: Annotated[int, whole(1, 65_535, "its port")] = 465
    security: Annotated[
        String,
        one_of(SECURITY, "a kind of security"),
        means("`tls`, `starttls`, or `none` for a server on this machine"),
    ] = "tls"
    user: Annotated[AnyText, means("the user who logs in there; empty: nobody does")] = ""
    password_file: Annotated[AnyText, means("the file with the password, read for each mail")] = ""
    password_env: Annotated[
        Variable, means("the environment variable that holds it; exactly one of the two is given with a `user`")
    ] = ""
    types: _Types = NOTICE_TYPES
    remind_after_s: _RemindAfter = 0
    max_attempts: _Attempts = 300
    timeout_s: _Timeout = 10

    def faults(self) -> Iterator[Fault]:
        if self.security == "none" and self.host not in _LOOPBACK:
            yield Fault(("security",), "the connection is not encrypted", "use `tls` or `starttls`")
        if self.user:
            yield from secret_faults(self, "password")
        elif self.password_file or self.password_env:
            yield Fault(("user",), "a password is for a user", "name the user, or leave the password out")
        yield from _reminder_faults(self)


NoticeDestination: TypeAlias = "WebhookSetting | MailSetting"


@dataclass(frozen=True, slots=True)
class OutboxSetting(SettingTable):
    """Every destination of notices."""

    webhooks: Annotated[tuple[WebhookSetting, ...], tables("outbox.webhooks", "where notices are posted")] = ()
    mails: Annotated[tuple[MailSetting, ...], tables("outbox.mails", "to whom notices are mailed")] = ()

    def faults(self) -> Iterator[Fault]:
        names = set[tuple[str, str]]()
        destinations: dict[str, tuple[NoticeDestination, ...]] = {"webhooks": self.webhooks, "mails": self.mails}
        for kind, group in destinations.items():
            for number, destination in enumerate(group):
                if (destination.tenant, destination.name) in names:
                    yield Fault((kind, number, "name"), "another destination has this name", "use another one")
                names.add((destination.tenant, destination.name))


def _reminder_faults(table: NoticeDestination) -> Iterator[Fault]:
    """Yield a fault if only one of `remind_after_s` and the type `question.reminded` is there. Without a list of types
    there is no fault.
    """
    if (table.remind_after_s != 0) != ("question.reminded" in table.types) and table.types != NOTICE_TYPES:
        detail = "`remind_after_s` and the type `question.reminded` need each other"
        yield Fault(("remind_after_s",), detail, "give both, or none")
