"""`Mail`: sends notices as plain-text mails by one SMTP server, over TLS unless the server is on this machine.

The `Message-ID` is made from the id of the notice, so a mail that is sent again is known as the same one. Text from
outside is escaped, so it begins no line and no header of its own.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from contextos.errors import Unavailable

if TYPE_CHECKING:
    from contextos.service.outbox.notices import Notice

_MAX_SUBJECT_CHARS: Final = 200


class Mail:
    """Sends notices from `sender` to `to`, through the server at `host` and `port`.

    `security` is `tls`, `starttls` or `none`. `password` is called for each mail if there is a `user`. `tls` holds the
    certificates that are trusted instead of the usual ones.
    """

    def __init__(
        self,
        host: str,
        port: int,
        sender: str,
        to: Sequence[str],
        *,
        security: str = "tls",
        user: str = "",
        password: Callable[[], str] = str,
        timeout_s: float = 10,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host, self._port, self._sender, self._to = host, port, sender, tuple(to)
        self._security, self._user, self._password = security, user, password
        self._timeout_s, self._tls = timeout_s, tls

    async def send(self, notice: Notice) -> None:
        """Send a notice once. Raises `Unavailable` if the server did not take it for everybody."""
        message = self._message(notice)
        # The library blocks. A call that takes too long ends on its own time limit, and the mail can then arrive twice.
        await asyncio.to_thread(self._deliver, message)

    def _message(self, notice: Notice) -> EmailMessage:
        message = EmailMessage(policy=SMTP_POLICY)
        message["From"], message["To"] = self._sender, ", ".join(self._to)
        message["Subject"] = f"[ContextOS] {notice.subject()}"[:_MAX_SUBJECT_CHARS]
        message["Date"] = format_datetime(datetime.fromtimestamp(notice.at_us // 1_000_000, UTC))
        message["Message-ID"] = f"<{notice.id}@{self._sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(notice.text())
        return message

    def _deliver(self, message: EmailMessage) -> None:
        try:
            with self._connect() as server:
                if self._user:
                    server.login(self._user, self._password())
                rejected = server.send_message(message, self._sender, self._to)
        except (smtplib.SMTPException, OSError) as error:
            # The text of an answer can have anything in it; the class says what failed.
            raise Unavailable(f"{self._host}:{self._port}", f"it took no mail ({type(error).__name__})") from None
        if rejected:
            raise Unavailable(f"{self._host}:{self._port}", f"it refused {len(rejected)} of {len(self._to)} addresses")

    def _connect(self) -> smtplib.SMTP:
        context = self._tls or ssl.create_default_context()
        if self._security == "tls":
            return smtplib.SMTP_SSL(self._host, self._port, timeout=self._timeout_s, context=context)
        with ExitStack() as on_failure:
            server = on_failure.enter_context(smtplib.SMTP(self._host, self._port, timeout=self._timeout_s))
            if self._security == "starttls":
                server.starttls(context=context)
            on_failure.pop_all()
        return server
