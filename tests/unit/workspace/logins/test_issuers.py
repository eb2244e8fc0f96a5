"""Issuers of tokens beside those of the directory, as the settings name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.store.shared.clock import SystemClock
from contextos.workspace.logins.bearer import _domains
from contextos.workspace.logins.issuers import approval_logins_of, partners_of
from contextos.workspace.settings import Settings
from contextos.workspace.settings.callers import HopIssuerSetting, HopsSetting, TrustDomainSetting, WorkloadsSetting
from contextos.workspace.settings.logins import ApprovalLoginsSetting


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(workspace=tmp_path)


def test_the_issuer_of_logins_is_that_of_the_settings(settings: Settings) -> None:
    clock = SystemClock()
    assert approval_logins_of(settings, clock) is None
    named = ApprovalLoginsSetting("https://login.example", "contextos", "https://login.example/jwks", max_auth_age_s=9)
    made = approval_logins_of(replace(settings, approval_logins=named), clock)
    assert made is not None
    assert (made.issuer, made.max_auth_age_s) == (named.trusted(), 9)


def test_an_address_of_keys_that_is_not_asked_is_named_at_its_setting(settings: Settings) -> None:
    private, clock = "https://10.0.0.1/keys", SystemClock()
    partner = HopIssuerSetting("https://partner.example", ("acme",), private)
    domain = TrustDomainSetting("acme.example", ("acme",), private)
    logins = ApprovalLoginsSetting("https://login.example", "contextos", private)
    hops, workloads = HopsSetting("https://us.example", (partner,)), WorkloadsSetting("us", (domain,))
    opened: dict[str, Callable[[], object]] = {
        "/hops/issuers/0/jwks_url": lambda: partners_of(replace(settings, hops=hops), clock),
        "/approval_logins/jwks_url": lambda: approval_logins_of(replace(settings, approval_logins=logins), clock),
        "/workloads/trust_domains/0/bundle_url": lambda: _domains(replace(settings, workloads=workloads), clock),
    }
    for pointer, opens in opened.items():
        with pytest.raises(InvalidSettings) as refused:
            opens()
        assert refused.value.problems[0].pointer == pointer


def test_the_partners_are_those_of_the_settings(settings: Settings) -> None:
    clock = SystemClock()
    assert partners_of(settings, clock) == {}
    listed = HopIssuerSetting("https://partner.example", ("acme",), jwks_file="partner.jwks")
    made = partners_of(replace(settings, hops=HopsSetting("https://us.example", (listed,))), clock)
    assert list(made) == ["https://partner.example"]
    assert made["https://partner.example"].tenants == ("acme",)
    assert not made["https://partner.example"].is_silent()
