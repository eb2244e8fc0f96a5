"""What the settings name and nothing in the workspace or the directory has."""

from __future__ import annotations

import asyncio
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from contextos.cli.demo.workspace import make_workspace
from contextos.contracts.setting_types import SettingTable
from contextos.errors import Integrity, InvalidSettings, Problem
from contextos.workspace.build import open_for_authors
from contextos.workspace.configuration import _TENANT_SETTINGS, Configuration
from contextos.workspace.settings import Settings
from tests.world import TENANT


def problems(path: Path) -> list[Problem]:
    async def found() -> list[Problem]:
        app = await open_for_authors(Settings.read(path))
        try:
            return list(Configuration(app.settings, app.deployment, app.listed_tenants).of_settings())
        finally:
            app.close()

    return asyncio.run(found())


def test_a_folder_and_a_tenant_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    make_workspace(path)
    assert problems(path) == []
    settings = path / "contextos.toml"
    said = settings.read_text("utf-8")
    kept = "".join(line for line in said.splitlines(keepends=True) if not line.startswith("packs"))
    settings.write_text(f'packs = ["nowhere"]\n{kept}\n[redaction]\ntenant_nobody = ["email"]\n{TENANT} = ["email"]\n')
    assert [(one.code, one.pointer) for one in problems(path)] == [
        ("no_folder", "/packs/0"),
        ("no_tenant", "/redaction/tenant_nobody"),
    ]


TYPOS = f"""
[egress]
tenant_acme_prd = ["api.example"]
[telemetry.tenants.tenant_acme_prd]
exporter = "none"
[attachments.places]
tenant_acme_prd = ["https://files.acme.example/"]
[hops]
address = "https://us.example"
[[hops.issuers]]
issuer = "https://partner.example"
tenants = ["{TENANT}", "tenant_acme_prd"]
jwks_file = "partner.json"
[workloads]
audience = "us"
[[workloads.trust_domains]]
name = "acme.example"
tenants = ["tenant_acme_prd"]
bundle_file = "bundle.json"
[[adapters]]
path = "crm.json"
digest = "sha256:00"
tenants = {{ tenant_acme_prd = {{ CRM_TOKEN = "ACME_CRM_TOKEN" }} }}
[[outbox.webhooks]]
name = "desk"
tenant = "{TENANT}"
url = "https://hooks.example/x"
link = "https://console.example/runs/{{run}}"
secret_env = "HOOK"
[[outbox.webhooks]]
name = "lead"
tenant = "tenant_acme_prd"
url = "https://hooks.example/x"
link = "https://console.example/runs/{{run}}"
secret_env = "HOOK"
[[outbox.mails]]
name = "mail"
tenant = "tenant_acme_prd"
host = "mail.example"
sender = "a@acme.example"
to = ["b@acme.example"]
link = "https://console.example/runs/{{run}}"
"""


def test_a_typo_of_a_tenant_is_refused_wherever_it_is_with_the_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    make_workspace(path)
    app = asyncio.run(open_for_authors(Settings.read(path)))
    (tmp_path / "contextos.toml").write_text(TYPOS, "utf-8")
    configuration = Configuration(Settings.read(tmp_path), app.deployment, app.listed_tenants)
    with pytest.raises(InvalidSettings) as refused:
        configuration.require_tenants()
    app.close()
    assert {one.pointer: (one.code, one.remedy) for one in refused.value.problems} == dict.fromkeys(
        [
            "/egress/tenant_acme_prd",
            "/telemetry/tenants/tenant_acme_prd",
            "/attachments/places/tenant_acme_prd",
            "/adapters/0/tenants/tenant_acme_prd",
            "/hops/issuers/0/tenants/1",
            "/workloads/trust_domains/0/tenants/0",
            "/outbox/webhooks/1/tenant",
            "/outbox/mails/0/tenant",
        ],
        ("no_tenant", f"did you mean `{TENANT}`?"),
    )


def test_no_setting_names_a_tenant_where_the_check_does_not_look() -> None:
    kinds = [one for one in SettingTable.__subclasses__() if one.__name__.endswith(("Setting", "Settings"))]
    named = {f"{kind.__name__}.{one.name}" for kind in kinds if is_dataclass(kind) for one in fields(kind)}
    tenants = {one for one in named if "tenant" in one}
    assert {one for one in tenants if one.partition(".")[2] not in _TENANT_SETTINGS} == {
        "OidcDirectorySetting.tenant_claim"
    }
    assert {"MailSetting.tenant", "HopIssuerSetting.tenants", "TelemetrySetting.tenants"} < tenants


def test_a_check_that_fails_later_is_said_and_does_not_keep_the_answer_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop"
    make_workspace(path)

    async def altered(*_: object) -> None:
        raise Integrity("a policy was altered")

    async def act() -> list[str]:
        app = await open_for_authors(Settings.read(path))
        try:
            configuration = Configuration(app.settings, app.deployment, app.listed_tenants)
            monkeypatch.setattr("contextos.workspace.configuration.pinned_packs", altered)
            assert configuration.latest() == ()
            assert configuration._check_task is not None
            await configuration._check_task
            return [one.code for _, one in configuration.latest()]
        finally:
            app.close()

    assert asyncio.run(act()) == ["not_checked"]
