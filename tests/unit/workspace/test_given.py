"""Which ports a deployment uses: those of the settings, or those that are given. Who may be a stand-in: the attacks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.directory import FileDirectory
from contextos.cli.demo.workspace import make_workspace
from contextos.errors import InvalidInput, InvalidSettings
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import PURPOSES, KeyRing
from contextos.workspace import GivenPorts, open_unchecked
from contextos.workspace.given import attachments_of, credentials_of
from contextos.workspace.settings import Settings
from contextos.workspace.settings.calls import AttachmentsSetting, TokenExchangeSetting
from tests.world import TENANT


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    make_workspace(tmp_path / "shop")
    return Settings.read(tmp_path / "shop")


def ring() -> KeyRing:
    return KeyRing({purpose: bytes([number]) * 32 for number, purpose in enumerate(PURPOSES, 1)})


class Directory:
    """A directory without `tenants`, which the port does not ask for."""

    def __init__(self, inner: FileDirectory) -> None:
        self.knows_tenant, self.resolve, self.delegation = inner.knows_tenant, inner.resolve, inner.delegation
        self.approver, self.held_roles = inner.approver, inner.held_roles


CAPABILITY = {
    "name": "track",
    "kind": "read",
    "risk_level": "read",
    "approval_mode": "read_only",
    "input_schema": {"type": "object", "additionalProperties": False, "properties": {}},
    "output_schema": {"type": "object", "additionalProperties": False, "properties": {}},
    "idempotency": {"strategy": "none"},
    "timeout_s": 5,
}


class Courier:
    def __init__(self, adapter_id: str = "adp_courier") -> None:
        self._id = adapter_id

    def describe(self) -> Any:
        from contextos import AdapterDefinition

        return AdapterDefinition.model_validate(
            {"adapter_id": self._id, "type": "function", "version": "1.0.0", "capabilities": [CAPABILITY]}
        )

    async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> Any: ...

    async def lookup(self, capability: str, key: str, context: Any) -> Any: ...


class Undescribed(Courier):
    """An adapter whose `describe` does something else."""

    def __init__(self, describe: Any) -> None:
        self.describe = describe  # type: ignore[method-assign]


class Nameless:
    async def propose(self, request: Any) -> Any: ...


def test_given_ports_are_the_ports_in_use(settings: Settings) -> None:
    directory, keys, courier = FileDirectory(settings.workspace / "directory.json"), ring(), Courier()
    app = asyncio.run(open_unchecked(settings, GivenPorts(directory, keys, (courier,))))
    ports = app.deployment.ports
    assert (ports.directory, ports.keys, app.keys) == (directory, keys, keys)
    assert {"adp_courier", "adp_payments"} <= ports.adapters(TENANT).keys()
    app.close()


def test_a_given_port_needs_no_file(settings: Settings) -> None:
    directory = FileDirectory(settings.workspace / "directory.json")
    for file in (settings.workspace / "keys").iterdir():
        file.unlink()
    app = asyncio.run(open_unchecked(settings, GivenPorts(directory, ring())))
    with pytest.raises(InvalidSettings, match="not files"):
        app.key_files()
    app.close()


def test_a_directory_that_lists_no_tenants_is_named_where_they_are_needed(settings: Settings) -> None:
    directory = Directory(FileDirectory(settings.workspace / "directory.json"))
    app = asyncio.run(open_unchecked(settings, GivenPorts(directory)))
    with pytest.raises(InvalidSettings, match="lists no tenants"):
        app.tenants()
    app.close()


class Nobody:
    async def exchange(self, _request: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        (GivenPorts(directory=object()), "/directory"),  # type: ignore[arg-type]
        (GivenPorts(directory=FileDirectory), "/directory"),  # type: ignore[arg-type]
        (GivenPorts(keys={}), "/keys"),  # type: ignore[arg-type]
        (GivenPorts(adapters=(Courier,)), "/adapters"),  # type: ignore[arg-type]
        (GivenPorts(adapters=(lambda: None,)), "/adapters"),  # type: ignore[arg-type]
        (GivenPorts(adapters=(Courier(), Courier())), "/adapters"),
        (GivenPorts(adapters=(Courier("adp_payments"),)), "/adapters"),
        (GivenPorts(adapters=Courier()), "/adapters"),  # type: ignore[arg-type]
        (GivenPorts(adapters=(Undescribed(lambda: None),)), "/adapters"),
        (GivenPorts(adapters=(Undescribed(lambda: 1 / 0),)), "/adapters"),
        (GivenPorts(planner=object()), "/planner"),  # type: ignore[arg-type]
        (GivenPorts(planner=Nameless()), "/planner"),  # type: ignore[arg-type]
        (GivenPorts(credentials=object()), "/credentials"),  # type: ignore[arg-type]
        (GivenPorts(credentials=Nobody()), "/credentials"),  # type: ignore[arg-type]
    ],
    ids=[
        "no directory",
        "a class",
        "no keys",
        "a class of adapters",
        "a function",
        "one id twice",
        "an id in use",
        "one adapter and no list",
        "an adapter without a definition",
        "an adapter that raises",
        "no planner",
        "a planner without a name",
        "no issuer of credentials",
        "an issuer without a name",
    ],
)
def test_what_is_no_port_is_refused(settings: Settings, given: GivenPorts, pointer: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        asyncio.run(open_unchecked(settings, given))
    assert refused.value.problems[0].pointer == pointer


def test_a_port_that_declares_no_tuple_is_refused(settings: Settings) -> None:
    directory = Directory(FileDirectory(settings.workspace / "directory.json"))
    directory.unsafe = "unsafe_local_directory"  # type: ignore[attr-defined]
    with pytest.raises(InvalidSettings, match="not a tuple"):
        asyncio.run(open_unchecked(settings, GivenPorts(directory)))


def test_the_issuer_of_credentials_is_that_of_the_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    assert credentials_of(settings, clock) is None
    named = TokenExchangeSetting("https://login.example/token", "contextos", secret_env="SHOP_CLIENT_SECRET")
    with pytest.raises(InvalidSettings, match="`SHOP_CLIENT_SECRET` holds no secret"):
        credentials_of(replace(settings, credentials=named), clock)
    monkeypatch.setenv("SHOP_CLIENT_SECRET", "s3cret")
    made = credentials_of(replace(settings, credentials=named), clock)
    assert made is not None
    assert made.issuer == "https://login.example/token"
    (settings.workspace / "client").write_text("s3cret\n")
    (settings.workspace / "client").chmod(0o644)
    of_file = replace(named, secret_env="", secret_file="client", issuer="https://login.example")
    with pytest.raises(InvalidSettings, match="can be read by others"):
        credentials_of(replace(settings, credentials=of_file), clock)
    (settings.workspace / "client").chmod(0o600)
    made = credentials_of(replace(settings, credentials=of_file), clock)
    assert made is not None
    assert made.issuer == "https://login.example"
    with pytest.raises(InvalidSettings, match="/credentials/url"):
        credentials_of(replace(settings, credentials=replace(named, url="https://login.example/a/../token")), clock)


def test_the_places_of_attachments_are_those_of_the_settings(settings: Settings) -> None:
    assert attachments_of(settings) is None
    named = AttachmentsSetting({"acme": ("https://files.acme.example/acme/",)})
    made = attachments_of(replace(settings, attachments=named))
    assert made is not None
    with pytest.raises(InvalidInput, match="not below a place of this tenant"):
        asyncio.run(made.fetch("other", "https://files.acme.example/acme/a", 99, {}))


def test_a_place_that_no_request_can_reach_is_refused(settings: Settings) -> None:
    named = AttachmentsSetting({"acme": ("https://FILES.acme.example/",)})
    with pytest.raises(InvalidSettings, match="/attachments/places"):
        attachments_of(replace(settings, attachments=named))
