"""The outboxes of the settings begin with the deployment, or nothing does."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import contextos
from contextos.cli.demo.workspace import example_operator, make_workspace
from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.outbox import MailSetting, OutboxSetting, WebhookSetting
from tests.loopback import Asked, serving
from tests.world import TENANT, request

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "shop"
    make_workspace(path, witness="witness.jsonl")

    async def initialise() -> None:
        async with contextos.open(path) as app:
            await app.initialise(TENANT, by=example_operator(path))

    asyncio.run(initialise())
    yield path
    assert list((path / "contextos.db.owners").iterdir()) == [], "nothing is left open"


def hook(url: str, **changes: str) -> WebhookSetting:
    link = "https://c.example/runs/{run}"
    made = WebhookSetting("desk", TENANT, url, link, secret_file="desk.secret", internal=True)
    return replace(made, **changes)


def test_notices_are_sent_while_a_deployment_is_open_by_one_process_at_a_time(workspace: Path) -> None:
    (workspace / "desk.secret").write_text(SECRET, "utf-8")
    (workspace / "desk.secret").chmod(0o600)
    took: list[Asked] = []
    with serving(lambda one: took.append(one) or (204, b"", {})) as url:  # type: ignore[func-returns-value]
        settings = replace(Settings.read(workspace), outbox=OutboxSetting((hook(url),)))

        async def act() -> None:
            async with contextos.open(settings) as app, contextos.open(settings):
                await app.deployment.invoke(request(900, "req_1"))
                for _ in range(400):
                    if took:
                        break
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.5)

        asyncio.run(act())
    assert [json.loads(one.body)["type"] for one in took] in (["run.finished"], ["run.escalated"])


@pytest.mark.parametrize("secret", [None, "", "whsec_short"])
def test_a_deployment_whose_secret_is_not_there_or_is_none_does_not_open(workspace: Path, secret: str | None) -> None:
    if secret is not None:
        (workspace / "desk.secret").write_text(secret, "utf-8")
        (workspace / "desk.secret").chmod(0o600)
    settings = replace(Settings.read(workspace), outbox=OutboxSetting((hook("https://desk.example/"),)))
    with pytest.raises(InvalidSettings) as refused, contextos.open(settings):
        pass
    assert refused.value.problems[0].pointer == "/outbox"


def test_a_tenant_that_nobody_knows_and_a_password_that_is_not_there_are_refused(workspace: Path) -> None:
    (workspace / "desk.secret").write_text(SECRET, "utf-8")
    (workspace / "desk.secret").chmod(0o600)
    unknown = OutboxSetting((hook("https://desk.example/", tenant="tenant_nobody"),))
    refused = pytest.raises(InvalidSettings, match="no tenant `tenant_nobody`")
    with refused, contextos.open(replace(Settings.read(workspace), outbox=unknown)):
        pass
    mail = MailSetting(
        "mail",
        TENANT,
        "smtp.example",
        "c@acme.example",
        ("a@acme.example",),
        "https://c.example/{run}",
        user="c",
        password_env="NO_SUCH_PASSWORD",
    )
    with (
        pytest.raises(InvalidSettings),
        contextos.open(replace(Settings.read(workspace), outbox=OutboxSetting(mails=(mail,)))),
    ):
        pass
