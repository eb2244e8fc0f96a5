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
    setting = app.settings.outbox
    destinations: list[WebhookSetting | MailSetting] = [*setting.webhooks, *setting.mails] if setting else []
    for destination in destinations:
        yield Outbox(
            deployment=app.deployment,
            tenant_id=destination.tenant,
            destination=destination.name,
            types=destination.types,  # type: ignore[arg-type]  # checked with the settings
            link=destination.link,
            send=_webhook(app, destination) if isinstance(destination, WebhookSetting) else _mail(app, destination),
            remind_after_s=destination.remind_after_s,
            max_attempts=destination.max_attempts,
        )


def _webhook(app: App, setting: WebhookSetting) -> Send:
    try:
        from contextos.adapters.notices.webhook import Webhook, parsed_secrets
    except ModuleNotFoundError as error:
        detail = f"`{error.name}` is not installed"
        problem = Problem("/outbox", "missing_extra", detail, "install `contextos[http]`")
        raise InvalidSettings(problem) from None
    secret = partial(_secret, app.settings.workspace, setting.secret_file, setting.secret_env)
    parsed_secrets(secret())
    clock = app.deployment.ports.clock
    return Webhook(setting.url, secret, clock, internal=setting.internal, timeout_s=setting.timeout_s).send


def _mail(app: App, setting: MailSetting) -> Send:
    from contextos.adapters.notices.mail import Mail

    password = partial(_secret, app.settings.workspace, setting.password_file, setting.password_env)
    if setting.user:
        password()
    return Mail(
        setting.host,
        setting.port,
        setting.sender,
        setting.to,
        security=setting.security,
        user=setting.user,
        password=password,
        timeout_s=setting.timeout_s,
    ).send


def _secret(root: Path, file: str, variable: str) -> str:
    return read_secret(root / file if file else None, variable, "/outbox").decode("utf-8", "replace")
