"""E31: a signed directory that was put back, changed, or signed by somebody else."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

import contextos
from contextos.adapters import signed_directory
from contextos.adapters.signed_directory import DIRECTORY_TYPE, SignedDirectory, sign_directory
from contextos.audit.verify import verify_tenant
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.control.artifacts import PACK_TYPE
from contextos.errors import ChainBroken, InvalidSettings, Unavailable
from contextos.trust.approvals.acts import sealed_act
from contextos.trust.approvals.people import signer
from contextos.trust.seal import KeyRing, seal
from contextos.workspace.settings import Settings
from contextos.workspace.settings.directory import SignedDirectorySetting
from contextos_sim.memory.stores import MemoryStores
from tests.unit.adapters.test_signed_directory import KEEPER, TENANTS, opened, resolved, sealing, write
from tests.world import TENANT, public_key, request, run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "directory.dsse.json"
    write(path, 3)
    return path


def test_a_version_that_was_put_back_knows_nobody_in_this_process(file: Path) -> None:
    directory = opened(file)
    assert run(resolved(directory))
    write(file, 2)
    with pytest.raises(Unavailable, match="version 3 was used before"):
        run(resolved(directory))


def test_nor_in_one_that_only_reads(file: Path) -> None:
    """Such a process writes no version down, and remembers it."""
    directory = opened(file, read_only=True)
    write(file, 4)
    assert run(resolved(directory))
    write(file, 3)
    with pytest.raises(Unavailable, match="version 4 was used before"):
        run(resolved(directory))


def test_nor_in_the_next_process_and_on_another_machine(file: Path) -> None:
    """The store knows the newest version, so a machine with an older file, or a new one, is refused."""
    stores = MemoryStores()
    older = opened(file, stores)
    assert run(resolved(older))
    newer = file.with_name("newer.json")
    write(newer, 4)
    assert run(resolved(opened(newer, stores)))
    with pytest.raises(Unavailable, match="version 4 was used before"):
        run(resolved(older))
    with pytest.raises(InvalidSettings, match="version 4 was used before"):
        run(opened(file, stores).check())


def test_one_version_has_one_content(file: Path) -> None:
    stores = MemoryStores()
    assert run(resolved(opened(file, stores)))
    changed = json.loads(json.dumps(TENANTS))
    changed[TENANT]["users"][0]["role"] = "finance_lead"
    write(file, 3, changed)
    with pytest.raises(Unavailable, match="another content"):
        run(resolved(opened(file, stores)))


def test_a_role_that_was_written_into_the_file_is_nobodys(file: Path) -> None:
    envelope = json.loads(file.read_text())
    payload = json.loads(base64.b64decode(envelope["payload"]))
    payload["tenants"][TENANT]["users"][0]["role"] = "finance_lead"
    envelope["payload"] = base64.b64encode(canonical(payload)).decode()
    file.write_text(json.dumps(envelope))
    with pytest.raises(InvalidSettings, match="nobody who may signed it"):
        opened(file)


def by(key: bytes) -> bytes:
    return sign_directory(TENANTS, 9, key)


def sealed_as(payload_type: str, payload: Any) -> bytes:
    return canonical(seal(payload_type, canonical(payload), KeyRing({"pack": KEEPER}), "pack"))


FORGED = {
    "by another key": lambda: by(b"x" * 32),
    "a pack by the same key": lambda: sealed_as(PACK_TYPE, {"version": 9, "tenants": TENANTS}),
    "without a signature": lambda: json.dumps({**json.loads(by(KEEPER)), "signatures": []}).encode(),
    "without a version": lambda: sealed_as(DIRECTORY_TYPE, {"tenants": TENANTS}),
    "with a text as version": lambda: sealed_as(DIRECTORY_TYPE, {"version": "9", "tenants": TENANTS}),
    "with more than that": lambda: sealed_as(DIRECTORY_TYPE, {"version": 9, "tenants": TENANTS, "more": 1}),
    "a list of tenants": lambda: sealed_as(DIRECTORY_TYPE, {"version": 9, "tenants": []}),
}


@pytest.mark.parametrize("make", FORGED.values(), ids=FORGED)
def test_what_the_keeper_did_not_sign_as_a_directory_is_none(file: Path, make: Any) -> None:
    directory = opened(file)
    file.write_bytes(make())
    with pytest.raises(Unavailable):
        run(resolved(directory))
    with pytest.raises(InvalidSettings):
        opened(file)


def test_the_owner_of_the_directory_key_is_named_by_the_settings_alone(file: Path) -> None:
    with pytest.raises(InvalidSettings):
        SignedDirectory(file, [public_key(b"x" * 32)], MemoryStores(), **sealing())


def test_a_run_records_the_version_and_goes_on_under_a_newer_one_with_the_same_people(tmp_path: Path) -> None:
    path = tmp_path / "a"
    make_workspace(path)
    tenants = loads((path / "directory.json").read_bytes())
    write(path / "directory.dsse.json", 1, tenants)
    named = SignedDirectorySetting("directory.dsse.json", (public_key(KEEPER).hex(),))
    settings = replace(Settings.read(path), directory=named, unsafe=("unsafe_local_keys",), witness="off")
    with contextos.open(settings) as app:
        app.initialise(TENANT, by=example_operator(path))
        app.call(seed_graph, app, Workspace(path, TENANT, {}))
        view = app.deployment.invoke(request(900, "req_1"))
        assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", ["unsafe_local_keys"])
        entries = app.stores.tenant(TENANT).read(view.run_id)
        admitted = next(one for one in entries if one.kind == "identity.resolved")
        assert loads(admitted.body)["answer"]["principals"]["directory_version"] == 1
        waiting = app.deployment.invoke(request(4200, "req_2"))
        write(path / "directory.dsse.json", 2, tenants)
        again = app.deployment.invoke(request(4200, "req_2"))
        assert (waiting.state, again.state) == ("waiting", "waiting")
        write(path / "directory.dsse.json", 1, tenants)
        with pytest.raises(Unavailable):
            app.deployment.invoke(request(901, "req_3"))
    with pytest.raises(InvalidSettings, match="version 2 was used before"), contextos.open(settings):
        pass


def stated(stores: MemoryStores) -> list[tuple[str, int]]:
    lines = run(stores.tenant(TENANT).read(CONTROL))
    return [(one.kind, loads(one.body)["version"]) for one in lines]


def test_each_version_that_is_used_is_a_sealed_line_of_control_and_stated_once(file: Path) -> None:
    stores = MemoryStores()
    directory = opened(file, stores)
    for version in (3, 4, 4, 7):
        write(file, version)
        assert run(resolved(directory))
        assert run(resolved(directory))
    assert stated(stores) == [("directory.used", 3), ("directory.used", 4), ("directory.used", 7)]
    assert run(stores.tenant(TENANT).scan("directory")) == [], "no row says which version is the newest"


@pytest.mark.parametrize("how", ["a copy of an older line", "an unsealed line", "sealed by another runtime"])
def test_a_line_that_somebody_adds_brings_no_older_version_back_and_stops_no_newer_one(file: Path, how: str) -> None:
    stores = MemoryStores()
    directory = opened(file, stores)
    assert run(resolved(directory))
    write(file, 5)
    assert run(resolved(directory))
    first = run(stores.tenant(TENANT).read(CONTROL))[0]
    body = loads(first.body) | ({} if how.startswith("a copy") else {"version": 9})
    if how.startswith("sealed"):
        unsealed = {name: value for name, value in body.items() if name != "seal"}
        place = Draft(first.kind, first.key, first.at_us, first.by, b"", first.salt)
        body = loads(sealed_act(TENANT, place, unsealed, KeyRing.from_seed(b"o" * 32)).body)
    added = Draft(first.kind, first.key, first.at_us, first.by, canonical(body), first.salt)
    run(stores.tenant(TENANT).commit(Batch(run=CONTROL, shared=((CONTROL, added),))))
    write(file, 6)
    assert run(resolved(directory)), "version 9 was never used"
    write(file, 3)
    with pytest.raises(Unavailable, match="version 6 was used before"):
        run(resolved(opened(file, stores)))


def test_of_two_processes_that_begin_to_use_one_version_with_two_contents_one_counts(file: Path) -> None:
    stores = MemoryStores()
    changed = json.loads(json.dumps(TENANTS))
    changed[TENANT]["users"][0]["role"] = "finance_lead"
    other = file.with_name("other.json")
    write(other, 3, changed)

    async def both() -> list[object]:
        two = (opened(file, stores), opened(other, stores))
        return await asyncio.gather(*map(resolved, two), return_exceptions=True)

    found = run(both())
    assert sorted(isinstance(one, Unavailable) for one in found) == [False, True]


def test_a_version_that_nobody_used_is_found_in_a_run(tmp_path: Path) -> None:
    """As a process would leave it that has the keys for heads and claims, and none for acts."""
    path = tmp_path / "a"
    make_workspace(path)
    tenants = loads((path / "directory.json").read_bytes())
    write(path / "directory.dsse.json", 1, tenants)
    named = SignedDirectorySetting("directory.dsse.json", (public_key(KEEPER).hex(),))
    settings = replace(Settings.read(path), directory=named, unsafe=("unsafe_local_keys",), witness="off")
    with contextos.open(settings) as app:
        app.initialise(TENANT, by=example_operator(path))
        app.call(seed_graph, app, Workspace(path, TENANT, {}))
        app.deployment.invoke(request(900, "req_1"))
        app.call(verified, app)
        write(path / "directory.dsse.json", 2, tenants)
        with patch.object(signed_directory, "state_directory", unstated):
            app.deployment.invoke(request(901, "req_2"))
        with pytest.raises(ChainBroken, match="version 2 of the directory"):
            app.call(verified, app)


def test_a_person_whom_a_newer_version_does_not_list_is_out_of_force_before_anybody_looks_them_up(file: Path) -> None:
    """A thief with their old key and every key of the runtime but that of acts has no line to rest on."""
    stores, (first, second) = MemoryStores(), TENANTS[TENANT]["approvers"][:2]
    ports: Any = SimpleNamespace(stores=stores, directory=opened(file, stores), **sealing())
    for one in (first, second):
        run(signer(ports, TENANT, one["approver_id"]))
    changed = json.loads(json.dumps(TENANTS))
    changed[TENANT]["approvers"][:2] = [{**second, "roles": []}]
    write(file, 4, changed)
    read_only = opened(file, stores, read_only=True)
    assert run(resolved(read_only))
    assert len(run(stores.tenant(TENANT).read(CONTROL))) == 3, "a process that only reads states nothing"
    newer = opened(file, stores)
    for _ in range(2):
        assert run(resolved(newer))
    lines = run(stores.tenant(TENANT).read(CONTROL))[3:]
    people = {one.key: loads(one.body)["person"] for one in lines if one.kind == "person.listed"}
    assert (len(lines), lines[-1].kind) == (3, "directory.used")
    assert people[first["approver_id"]] is None
    assert people[second["approver_id"]]["roles"] == []


async def unstated(
    _ports: object, _tenant: str, version: int, content: str, _people: object, *, write: bool
) -> tuple[int, str]:
    return version, content


async def verified(app: Any) -> None:
    await verify_tenant(app.stores.tenant(TENANT), TENANT, app.keys)
