"""Mails arrive at a real SMTP server, and text from outside stays in its line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from contextos.adapters.notices.mail import Mail
from contextos.errors import Unavailable
from contextos.service.outbox.notices import Notice

ASKED = {
    "waits_for": "approval",
    "capability_id": "adp_payments.issue_refund",
    "required_role": "finance_lead\r\nBcc: eve@evil.example\r\n\r\nApproved",
    "deadline_us": 1_793_003_600_000_000,
}
NOTICE = Notice("msg_1", "question.asked", "t", "run_1", 7, 1_793_000_000_000_000, ASKED, "https://c.example/run_1")


class Inbox:
    def __init__(self, refuses: str = "") -> None:
        self.got: list[Any] = []
        self.refuses = refuses

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:
        if address == self.refuses:
            return "550 nobody of this name, secret"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:
        self.got.append((envelope, session))
        return "250 OK"


@contextmanager
def server(inbox: Inbox, **options: Any) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(inbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield port
    finally:
        controller.stop()


def mail(port: int, *to: str, **options: Any) -> Mail:
    return Mail("127.0.0.1", port, "contextos@acme.example", to, **{"security": "none", **options})


def test_a_question_arrives_with_its_link_and_with_no_line_of_a_stranger() -> None:
    inbox = Inbox()
    with server(inbox) as port:
        for _ in range(2):
            asyncio.run(mail(port, "ann@acme.example", "bob@acme.example").send(NOTICE))
    first, second = (message_from_bytes(one.content, policy=default) for one, _ in inbox.got)
    assert inbox.got[0][0].rcpt_tos == ["ann@acme.example", "bob@acme.example"]
    assert first["Bcc"] is None
    assert first["Subject"].startswith("[ContextOS] a finance_lead\\r\\nBcc") or "\\n" in first["Subject"]
    assert first["Message-ID"] == second["Message-ID"] == "<msg_1@acme.example>"
    assert first["Auto-Submitted"] == "auto-generated"
    text = first.get_content()
    assert "https://c.example/run_1" in text
    assert "approves nothing" in text
    assert "until: 2026-10-26T" in text
    assert not any(line.startswith(("Bcc", "Approved")) for line in text.splitlines())


def test_a_server_that_refuses_one_of_the_addresses_has_not_taken_it() -> None:
    with server(Inbox(refuses="bob@acme.example")) as port:
        with pytest.raises(Unavailable, match="1 of 2") as refused:
            asyncio.run(mail(port, "ann@acme.example", "bob@acme.example").send(NOTICE))
        assert "secret" not in str(refused.value)
        with pytest.raises(Unavailable, match="SMTPRecipientsRefused"):
            asyncio.run(mail(port, "bob@acme.example").send(NOTICE))


def test_nothing_is_sent_without_the_encryption_that_is_asked_for() -> None:
    inbox = Inbox()
    with server(inbox) as port:
        for security in ("tls", "starttls"):
            with pytest.raises(Unavailable):
                asyncio.run(mail(port, "ann@acme.example", security=security, timeout_s=2).send(NOTICE))
    assert inbox.got == []
    with pytest.raises(Unavailable):
        asyncio.run(mail(port, "ann@acme.example").send(NOTICE))


def test_a_user_logs_in_with_the_password_of_that_moment() -> None:
    inbox, said = Inbox(), []

    def login(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        said.append(data)
        return AuthResult(success=data == LoginPassword(b"ann", b"pass word"))

    with server(inbox, authenticator=login, auth_require_tls=False) as port:
        asyncio.run(mail(port, "x@acme.example", user="ann", password=lambda: "pass word").send(NOTICE))
        with pytest.raises(Unavailable) as refused:
            asyncio.run(mail(port, "x@acme.example", user="ann", password=lambda: "wrong").send(NOTICE))
    assert len(inbox.got) == 1
    assert "wrong" not in str(refused.value)
