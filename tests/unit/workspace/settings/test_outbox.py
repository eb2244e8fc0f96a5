"""The setting `[outbox]` is refused where something in it could not be done."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.outbox import MailSetting, OutboxSetting, WebhookSetting
from contextos.workspace.settings.reading import check_value, read_table

HOOK: dict[str, Any] = {
    "name": "desk",
    "tenant": "t",
    "url": "https://desk.example/hook",
    "link": "https://c.example/runs/{run}",
    "secret_env": "HOOK_SECRET",
}
MAIL: dict[str, Any] = {
    "name": "mail",
    "tenant": "t",
    "host": "smtp.example",
    "sender": "c@acme.example",
    "to": ["ann@acme.example"],
    "link": "https://c.example/runs/{run}",
}


def problem(value: Any) -> str:
    with pytest.raises(InvalidSettings) as refused:
        read_table(OutboxSetting, "", deepcopy(value), {})
    found = refused.value.problems[0]
    assert found.remedy
    return found.pointer


def test_a_file_with_both_kinds_is_read(tmp_path: Path) -> None:
    (tmp_path / "contextos.toml").write_text(
        """
        [[outbox.webhooks]]
        name = "desk"
        tenant = "t"
        url = "https://desk.example/hook"
        link = "https://c.example/runs/{run}"
        secret_file = "desk.secret"
        types = ["question.asked"]
        [[outbox.mails]]
        name = "mail"
        tenant = "t"
        host = "smtp.example"
        sender = "c@acme.example"
        to = ["ann@acme.example"]
        link = "https://c.example/runs/{run}"
        remind_after_s = 600
        """,
        "utf-8",
    )
    found = Settings.read(tmp_path).outbox
    assert found is not None
    assert (found.webhooks[0].types, found.mails[0].to) == (("question.asked",), ("ann@acme.example",))
    assert "desk.secret" in str(found), "the place of a secret is no secret"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"url": "http://desk.example/"}, "url"),
        ({"url": "https://user:pw@desk.example/"}, "url"),
        ({"url": "ftp://desk.example/"}, "url"),
        ({"url": 5}, "url"),
        ({"link": "https://c.example/runs"}, "link"),
        ({"link": "https://c.example/{run}/{run}"}, "link"),
        ({"link": "javascript:alert({run})"}, "link"),
        ({"secret_file": "x"}, ""),
        ({"secret_env": ""}, ""),
        ({"secret_env": "whsec_secret=="}, "secret_env"),
        ({"secret_env": "", "secret_file": "a\0b"}, "secret_file"),
        ({"types": []}, "types"),
        ({"types": ["question.askd"]}, "types/0"),
        ({"types": ["question.asked"], "remind_after_s": 60}, "remind_after_s"),
        ({"types": ["question.reminded"]}, "remind_after_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout_s": 60}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"remind_after_s": -1}, "remind_after_s"),
        ({"internal": "yes"}, "internal"),
        ({"name": "a/b"}, "name"),
        ({"tenant": ""}, "tenant"),
        ({"secret": "whsec_"}, "secret"),
    ],
)
def test_a_webhook_that_could_not_be_sent_safely_is_refused(change: dict[str, Any], pointer: str) -> None:
    assert problem({"webhooks": [{**HOOK, **change}]}) == f"/webhooks/0/{pointer}".rstrip("/")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"security": "none"}, "security"),
        ({"security": "ssl"}, "security"),
        ({"host": "smtp.example:25"}, "host"),
        ({"port": 0}, "port"),
        ({"to": []}, "to"),
        ({"to": ["ann@acme.example\nBcc: eve@x.example"]}, "to/0"),
        ({"sender": "nobody"}, "sender"),
        ({"user": "ann"}, ""),
        ({"password_env": "PW"}, "user"),
    ],
)
def test_a_mail_that_could_not_be_sent_safely_is_refused(change: dict[str, Any], pointer: str) -> None:
    assert problem({"mails": [{**MAIL, **change}]}) == f"/mails/0/{pointer}".rstrip("/")


def test_unknown_missing_and_repeated_names_are_refused() -> None:
    assert problem({"pagers": []}) == "/pagers"
    assert problem([]) == ""
    assert problem({"webhooks": ["x"]}) == "/webhooks/0"
    assert problem({"webhooks": [{"name": "desk"}]}) == "/webhooks/0/tenant"
    assert problem({"webhooks": [HOOK], "mails": [{**MAIL, "name": "desk"}]}) == "/mails/0/name"
    for made in (7, OutboxSetting(webhooks=(7,))):  # type: ignore[arg-type]
        with pytest.raises(InvalidSettings):
            check_value(OutboxSetting, made)
    check_value(OutboxSetting, OutboxSetting((WebhookSetting(**HOOK),), (MailSetting(**MAIL),)))
