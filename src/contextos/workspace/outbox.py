"""Makes the outboxes that the settings name, and starts them where the handlers of `App.on` run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contextos.adapters.encrypted_keys import read_secret
from contextos.errors import InvalidSettings, Problem
from contextos.service.outbox.sending import Outbox
from contextos.workspace.settings.outbox import MailSetting, WebhookSetting

if TYPE_CHECKING:
    from contextos.service.outbox.sending import Send
    from contextos.workspace.application import App


async def begin_outboxes(app: App) -> None:
    """Begin to send notices to every destination of the settings, until the delivery of the app stops.

    Raises:
        InvalidSettings: a secret is not there or is not valid, a URL is wrong, or the extra `http` is not installed.
        NotFound: the directory has no such tenant.
        Unavailable: the store or the directory does not answer.
    """
    for outbox in list(_outboxes(app)):
        await app.delivery.begin(outbox)


def _outboxes(app: App) -> Iterator[Outbox]:
    named = app.settings.outbox
    destinations: list[WebhookSetting | MailSetting] = [*named.webhooks, *named.mails] if named else []
    for one in destinations:
        yield Outbox(
            deployment=app.deployment,
            tenant_id=one.tenant,
            destination=one.name,
            types=one.types,  # type: ignore[arg-type]  # checked with the settings
            link=one.link,
            send=_webhook(app, one) if isinstance(one, WebhookSetting) else _mail(app, one),
            remind_after_s=one.remind_after_s,
            max_attempts=one.max_attempts,
        )


def _webhook(app: App, named: WebhookSetting) -> Send:
    try:
        from contextos.adapters.notices.webhook import Webhook, parsed_secrets
    except ModuleNotFoundError as missing:
        detail = f"`{missing.name}` is not installed"
        problem = Problem("/outbox", "missing_extra", detail, "install `contextos[http]`")
        raise InvalidSettings(problem) from None
    secret = partial(_secret, app.settings.workspace, named.secret_file, named.secret_env)
    parsed_secrets(secret())
    clock = app.deployment.ports.clock
    return Webhook(named.url, secret, clock, internal=named.internal, timeout_s=named.timeout_s).send


def _mail(app: App, named: MailSetting) -> Send:
    from contextos.adapters.notices.mail import Mail

    password = partial(_secret, app.settings.workspace, named.password_file, named.password_env)
    if named.user:
        password()
    return Mail(
        named.host,
        named.port,
        named.sender,
        named.to,
        security=named.security,
        user=named.user,
        password=password,
        timeout_s=named.timeout_s,
    ).send


def _secret(root: Path, file: str, variable: str) -> str:
    return read_secret(root / file if file else None, variable, "/outbox").decode("utf-8", "replace")
