"""A directory in a signed file: what it resolves, and which versions are used. Its attacks are in `test_e31`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.signed_directory import SignedDirectory, sign_directory
from contextos.contracts.ports.storage import Stores
from contextos.errors import InvalidInput, InvalidSettings, Unavailable
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores
from tests.world import TENANT, ManualClock, SystemEntropy, example, public_key, run

KEEPER = b"d" * 32
TENANTS = example("directory.json")


def write(path: Path, version: int, tenants: Any = None, key: bytes = KEEPER) -> None:
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(sign_directory(tenants or TENANTS, version, key))
    os.utime(path, ns=(1, max(path.stat().st_mtime_ns, before) + 1_000_000))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "directory.dsse.json"
    write(path, 3)
    return path


def sealing() -> dict[str, Any]:
    return {"keys": KeyRing.from_seed(b"k" * 32), "clock": ManualClock(), "entropy": SystemEntropy()}


def opened(file: Path, stores: Stores | None = None, **options: Any) -> SignedDirectory:
    return SignedDirectory(file, [public_key(KEEPER)], stores or MemoryStores(), **sealing(), **options)


async def resolved(directory: SignedDirectory, tenant: str = TENANT) -> Any:
    listed = TENANTS[TENANT]
    return await directory.resolve(tenant, listed["users"][0]["user_id"], listed["agents"][0]["agent_id"])


def test_identities_name_the_version_that_they_rest_on_and_nothing_unsafe(file: Path) -> None:
    directory = opened(file)
    known = run(resolved(directory))
    assert (known.directory_version, known.unsafe, directory.unsafe) == (3, (), ())
    assert directory.tenants() == (TENANT,)
    assert run(directory.knows_tenant(TENANT))
    assert run(directory.held_roles(TENANT)).approvers
    assert run(directory.approver(TENANT, TENANTS[TENANT]["approvers"][0]["approver_id"]))


def test_a_newer_version_is_taken_up_while_it_runs(file: Path) -> None:
    directory, stores = opened(file), MemoryStores()
    assert run(resolved(directory)).directory_version == 3
    write(file, 4)
    assert run(resolved(directory)).directory_version == 4
    assert run(resolved(opened(file, stores))).directory_version == 4


def test_a_version_that_is_taken_up_meanwhile_is_not_that_of_people_who_were_read_before(file: Path) -> None:
    changed = json.loads(json.dumps(TENANTS))
    changed[TENANT]["users"][0]["role"] = "support_lead"

    class Interrupted(SignedDirectory):
        async def _user(self, tenant_id: str, tenant: Any, user_id: str) -> Any:
            if self._version == 3:
                write(file, 4, changed)
                await self._tenant(tenant_id)
            return await super()._user(tenant_id, tenant, user_id)

    directory = Interrupted(file, [public_key(KEEPER)], MemoryStores(), **sealing())
    known = [run(resolved(directory)) for _ in range(2)]
    assert [(one.directory_version, one.user.role) for one in known] == [(3, "support_agent"), (4, "support_lead")]


def test_the_same_identities_of_another_version_are_the_same(file: Path) -> None:
    directory = opened(file)
    before = run(resolved(directory))
    write(file, 4)
    after = run(resolved(directory))
    assert before != after
    assert before.same_as(after)
    changed = json.loads(json.dumps(TENANTS))
    changed[TENANT]["users"][0]["role"] = "intern"
    write(file, 5, changed)
    assert not before.same_as(run(resolved(directory)))


def test_an_invented_tenant_writes_nothing(file: Path) -> None:
    class Counted(MemoryStores):
        asked = 0

        def tenant(self, tenant_id: str) -> Any:
            self.asked += 1
            return super().tenant(tenant_id)

    stores = Counted()
    directory = opened(file, stores)
    assert run(resolved(directory, "tenant_invented")) is None
    assert not run(directory.knows_tenant("tenant_invented"))
    assert run(directory.approver("tenant_invented", "x")) is None
    assert stores.asked == 0


def test_a_store_for_reading_compares_and_writes_nothing(file: Path, tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "a.db")
    run(opened(file, stores).check())
    reader = SqliteStores(tmp_path / "a.db", read_only=True)
    write(file, 4)
    assert run(resolved(opened(file, reader, read_only=True))).directory_version == 4
    write(file, 2)
    with pytest.raises(Unavailable, match="version 3 was used before"):
        run(resolved(opened(file, reader, read_only=True)))
    stores.close()
    reader.close()


def test_two_processes_that_begin_a_version_at_once_both_use_it(file: Path) -> None:
    stores = MemoryStores()

    async def both() -> list[Any]:
        return await asyncio.gather(*(resolved(opened(file, stores)) for _ in range(8)))

    assert [one.directory_version for one in run(both())] == [3] * 8


@pytest.mark.parametrize("version", [0, -1, True, 1.5, "2"], ids=repr)
def test_a_version_counts_from_one(version: Any) -> None:
    with pytest.raises(InvalidInput):
        sign_directory(TENANTS, version, KEEPER)


def test_a_file_that_is_gone_or_no_envelope_is_named_at_the_start_and_knows_nobody_later(file: Path) -> None:
    directory = opened(file)
    for content in (b"", b"{}", b"[]", json.dumps(TENANTS).encode()):
        file.write_bytes(content)
        os.utime(file, ns=(1, file.stat().st_mtime_ns + 1_000_000 * (len(content) + 1)))
        with pytest.raises(Unavailable):
            run(resolved(directory))
        with pytest.raises(InvalidSettings):
            opened(file)
