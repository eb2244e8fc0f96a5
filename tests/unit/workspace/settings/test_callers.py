"""The table `[workloads]`: each trust domain names its keys and its tenants, or nothing starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.callers import TrustDomainSetting, WorkloadsSetting
from contextos.workspace.settings.reading import check_value

TEXT = """
    [workloads]
    audience = "https://contextos.acme.example"
    [[workloads.trust_domains]]
    name = "acme.example"
    tenants = ["tenant_acme"]
    bundle_url = "https://spire.acme.example/bundle"
    algorithms = ["ES256"]
    [[workloads.trust_domains]]
    name = "other.example"
    tenants = ["tenant_other"]
    bundle_file = "bundle.json"
    leeway_s = 5
    internal = true
"""
GOOD = TrustDomainSetting("acme.example", ("tenant_acme",), "https://spire.acme.example/bundle", algorithms=("ES256",))


def test_trust_domains_are_read(tmp_path: Path) -> None:
    (tmp_path / "contextos.toml").write_text(TEXT)
    second = TrustDomainSetting(
        "other.example", ("tenant_other",), bundle_file="bundle.json", leeway_s=5, internal=True
    )
    assert Settings.read(tmp_path).workloads == WorkloadsSetting("https://contextos.acme.example", (GOOD, second))
    (tmp_path / "contextos.toml").write_text("")
    assert Settings.read(tmp_path).workloads is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "spiffe://acme.example"},
        {"name": "acme.example/agents"},
        {"name": "ACME.example"},
        {"name": 7},
        {"tenants": ()},
        {"tenants": "tenant_acme"},
        {"tenants": ("",)},
        {"bundle_url": ""},
        {"bundle_file": "bundle.json"},
        {"bundle_url": "http://spire.acme.example/bundle"},
        {"bundle_url": "", "bundle_file": 7},
        {"algorithms": ()},
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
        {"algorithms": ("Ed25519",)},
        {"leeway_s": 301},
        {"leeway_s": True},
        {"internal": "yes"},
    ],
    ids=str,
)
def test_a_trust_domain_that_cannot_be_trusted_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        check_value(WorkloadsSetting, WorkloadsSetting("us", (replace(GOOD, **wrong),)), "/workloads")
    assert all(one.pointer.startswith("/workloads/trust_domains/0") for one in refused.value.problems)
    checked = check_value(WorkloadsSetting, WorkloadsSetting("us", [GOOD]))  # type: ignore[arg-type]
    assert checked.trust_domains == (GOOD,), "a list is a tuple afterwards"


@pytest.mark.parametrize(
    "wrong",
    [
        WorkloadsSetting("", (GOOD,)),
        WorkloadsSetting("us", ()),
        WorkloadsSetting("us", (GOOD, GOOD)),
        WorkloadsSetting("us", ("acme.example",)),  # type: ignore[arg-type]
        "acme.example",
    ],
    ids=repr,
)
def test_a_list_that_trusts_nobody_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSettings):
        check_value(WorkloadsSetting, wrong)


@pytest.mark.parametrize(
    "text",
    [
        "workloads = 7",
        '[workloads]\naudience = "us"',
        '[workloads]\naudience = "us"\ntrust_domains = 7',
        '[workloads]\naudience = "us"\ntrust_domains = [7]',
        '[workloads]\naudience = "us"\n[[workloads.trust_domains]]\nname = "a"',
        '[workloads]\naudience = "us"\n[[workloads.trust_domains]]\nname = "a"\ntenants = ["t"]\nbundel_url = "x"',
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "contextos.toml").write_text(text)
    with pytest.raises(InvalidSettings):
        Settings.read(tmp_path)
