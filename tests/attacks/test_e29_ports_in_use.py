"""E29: a program or a settings file that states other ports than those in use, and a service on stand-ins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.directory import FileDirectory
from contextos.adapters.encrypted_keys import make_pkcs8_keys
from contextos.adapters.signed_directory import sign_directory
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.errors import InvalidSettings
from contextos.trust.seal import PURPOSES, KeyRing, seal
from contextos.workspace import GivenPorts, open_unchecked
from contextos.workspace.settings import UNSAFE_PORTS, Settings
from tests.postgres import Database
from tests.world import TENANT, public_key, request

SEEDS = {purpose: bytes([number]) * 32 for number, purpose in enumerate(PURPOSES, 1)}

DEFINITION = contextos.AdapterDefinition.model_validate(
    {
        "adapter_id": "adp_x",
        "type": "function",
        "version": "1.0.0",
        "capabilities": [
            {
                "name": "track",
                "kind": "read",
                "risk_level": "read",
                "approval_mode": "read_only",
                "input_schema": {"type": "object", "additionalProperties": False, "properties": {}},
                "output_schema": {"type": "object", "additionalProperties": False, "properties": {}},
                "idempotency": {"strategy": "none"},
                "timeout_s": 5,
            }
        ],
    }
)


class OwnDirectory(FileDirectory):
    """What a program writes over its identity provider; here it reads the example's people from the file."""

    unsafe = ()

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Any:
        known = await super().resolve(tenant_id, user_id, agent_id)
        return known and known.model_copy(update={"unsafe": ()})


def workspace(path: Path, **change: Any) -> Settings:
    """The example's workspace, its packs signed with `SEEDS`."""
    make_workspace(path)
    pack = canonical(loads((path / "pack.json").read_bytes()))
    (path / "packs" / "support.json").write_bytes(canonical(seal(PACK_TYPE, pack, KeyRing(SEEDS), "pack")))
    (path / "packs" / "decisions.json").unlink()
    return replace(Settings.read(path), **change)


async def refund(settings: Settings, **ports: Any) -> Any:
    """Initialise a deployment on these ports and refund INR 900."""
    async with contextos.open(settings, **ports) as app:
        await app.initialise(TENANT, by=example_operator(settings.workspace))
        await seed_graph(app, Workspace(settings.workspace, TENANT, {}))  # type: ignore[arg-type]
        return await app.deployment.invoke(request(900, "req_1"))


def own(settings: Settings) -> dict[str, Any]:
    return {"directory": OwnDirectory(settings.workspace / "directory.json"), "keys": KeyRing(SEEDS)}


def test_a_record_names_the_stand_ins_in_use_and_not_those_that_the_settings_allow(tmp_path: Path) -> None:
    settings = workspace(tmp_path / "a")
    assert set(settings.unsafe) == set(UNSAFE_PORTS) - {"unsafe_scripted_models"}
    view = asyncio.run(refund(settings, **own(settings)))
    assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", [])
    settings = workspace(tmp_path / "b")
    view = asyncio.run(refund(settings, keys=KeyRing(SEEDS)))
    assert view.record["lineage"]["unsafe"] == ["unsafe_local_directory"]


def test_an_unsafe_port_that_nobody_named_is_refused_and_with_dev_it_is_named_by_the_record(tmp_path: Path) -> None:
    settings = workspace(tmp_path / "a", unsafe=())
    keys = KeyRing(SEEDS)
    with pytest.raises(InvalidSettings, match="allow `unsafe_local_directory`"):
        asyncio.run(refund(settings, keys=keys))
    view = asyncio.run(refund(settings, keys=keys, dev=True))
    assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", ["unsafe_local_directory"])


def test_dev_allows_every_port_that_says_it_is_unsafe(tmp_path: Path) -> None:
    settings = workspace(tmp_path / "a", unsafe=())
    ports = own(settings)
    ports["directory"].unsafe = ("unsafe_of_ours",)
    with pytest.raises(InvalidSettings, match="allow `unsafe_of_ours`"), contextos.open(settings, **ports):
        pass
    view = asyncio.run(refund(settings, **ports, dev=True))
    assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", ["unsafe_of_ours"])


def test_keys_that_were_made_from_one_seed_are_unsafe(tmp_path: Path) -> None:
    settings = workspace(tmp_path / "a", unsafe=())
    ports = {**own(settings), "keys": KeyRing.from_seed(b"s" * 32)}
    with pytest.raises(InvalidSettings, match="allow `unsafe_local_keys`"), contextos.open(settings, **ports):
        pass


@pytest.mark.parametrize("dev", [False, True])
@pytest.mark.parametrize("name", ["directory", "keys", "adapters", "planner"])
def test_a_service_runs_on_no_unsafe_port(tmp_path: Path, name: str, dev: bool) -> None:
    settings = workspace(tmp_path / "a", unsafe=(), profile="service", environment="prod")
    ports = own(settings)
    if name in ports:
        del ports[name]
    else:

        class StandIn:
            name, unsafe = "ours@1.0.0", ("unsafe_of_ours",)

            def __getattr__(self, _: str) -> Any:
                return lambda *_: DEFINITION

        ports[name] = StandIn() if name == "planner" else [StandIn()]
    with (
        pytest.raises(InvalidSettings, match="this deployment is a service"),
        contextos.open(settings, **ports, dev=dev),
    ):
        pass


def test_other_allowances_still_come_from_the_settings_alone(tmp_path: Path) -> None:
    """`dev` allows ports; an approval without a key is no port."""
    settings = workspace(tmp_path / "a", unsafe=())
    app = asyncio.run(open_unchecked(settings, GivenPorts(dev=True)))
    assert app.deployment.config.unsafe == ("unsafe_local_directory", "unsafe_local_keys")
    app.close()


@pytest.mark.parametrize(
    "name", ["unsafe_local_approvals", "unsafe_unsigned_packs", "unsafe_observed", "safe", "unsafe_" + "x" * 80, ""]
)
def test_what_a_port_declares_switches_nothing_on(tmp_path: Path, name: str) -> None:
    """With the name of a setting it would allow answers without a key, or packs that nobody signed."""
    settings = workspace(tmp_path / "a", unsafe=())
    ports = own(settings)
    ports["directory"].unsafe = (name,)
    with pytest.raises(InvalidSettings, match="a port cannot declare"), contextos.open(settings, **ports, dev=True):
        pass


def test_a_service_opens_on_a_database_a_directory_and_keys_of_its_own(tmp_path: Path, database: Database) -> None:
    settings = workspace(tmp_path / "a", unsafe=(), profile="service", environment="prod", store=database.app)
    view = asyncio.run(refund(settings, **own(settings)))
    assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", [])
    with contextos.open(settings, **own(settings)) as app:
        assert app.deployment.invoke(request(900, "req_1")).run_id == view.run_id


def test_a_service_opens_from_its_settings_alone(tmp_path: Path, database: Database) -> None:
    """Encrypted keys, a signed directory and a database, all named in `contextos.toml`."""
    path, keeper = tmp_path / "a", b"d" * 32
    workspace(path)
    (path / "directory.dsse.json").write_bytes(sign_directory(loads((path / "directory.json").read_bytes()), 1, keeper))
    sealed = make_pkcs8_keys(path / "sealed", b"correct horse battery staple")
    (path / "secret").touch(mode=0o600)
    (path / "secret").write_text("correct horse battery staple")
    pack = canonical(loads((path / "pack.json").read_bytes()))
    (path / "packs" / "support.json").write_bytes(canonical(seal(PACK_TYPE, pack, sealed, "pack")))
    adapters = (path / "contextos.toml").read_text().partition("[[adapters]]")[2]
    (path / "contextos.toml").write_text(
        f'''store = "{database.app}"
profile = "service"
environment = "prod"

[keys]
kind = "pkcs8"
path = "sealed"
passphrase_file = "secret"

[directory]
kind = "signed"
path = "directory.dsse.json"
signers = ["{public_key(keeper).hex()}"]

[[adapters]]{adapters}'''
    )
    view = asyncio.run(refund(Settings.read(path)))
    assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", [])
    with contextos.open(path) as app:
        assert app.deployment.invoke(request(900, "req_1")).run_id == view.run_id


def test_the_runtime_of_a_service_signs_no_pack(tmp_path: Path, database: Database) -> None:
    """Otherwise a file that somebody puts into `packs/` would get a signature that nobody made."""
    settings = workspace(tmp_path / "a", unsafe=(), profile="service", environment="prod", store=database.app)
    short = "name: short.read\nversion: 1.0.0\ntenant: TENANT\nwho: [support_agent]\ntools: [adp_orders.lookup]\n"
    short += "budget: {max_cost_cents: 1}\n"
    file = settings.workspace / "packs" / "short.yaml"
    file.write_text(short.replace("TENANT", TENANT), "utf-8")

    async def act() -> None:
        async with contextos.open(settings, **own(settings)) as app:
            with pytest.raises(InvalidSettings, match=r"nobody signed `short\.read@1\.0\.0`.*contextos pack sign"):
                await app.initialise(TENANT, by=example_operator(settings.workspace))
            assert not (await app.deployment.catalog(TENANT).active()).version
            declared = contextos.read_pack(file, tools=app.deployment.ports.adapters(TENANT).values())
            with pytest.raises(InvalidSettings, match="the runtime of a service signs no pack"):
                await app.install(declared, by=example_operator(settings.workspace))

    asyncio.run(act())
