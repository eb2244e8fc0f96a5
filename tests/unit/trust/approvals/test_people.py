"""Lines of `control` about people: what they state, when they are in force, and which do not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import Approver
from contextos.contracts.journal import CLOCK_MARGIN_US, CONTROL, Batch, Draft, Entry
from contextos.errors import ChainBroken
from contextos.trust.approvals.people import ListedPeople, signer
from contextos.trust.seal import KeyRing
from tests.world import APPROVER, TENANT, TestWorld, open_world, run

HOUR_US = 3_600_000_000


async def lines(world: TestWorld, person: str = APPROVER) -> list[Entry]:
    return list(await world.stores.tenant(TENANT).lines(CONTROL, person))


async def add(world: TestWorld, line: Entry, **change: Any) -> None:
    draft = Draft(line.kind, line.key, line.at_us, line.by, line.body or b"", line.salt or b"")._replace(**change)
    await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, shared=((CONTROL, draft),)))


@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_a_person_is_stated_once_and_again_when_the_directory_lists_them_otherwise_or_not_any_more(
    tmp_path: Path, stores: str
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        ports = world.deployment.ports
        first = await signer(ports, TENANT, APPROVER)
        assert await signer(ports, TENANT, APPROVER) == first
        assert await signer(ports, TENANT, "user_nobody") is None
        world.know(APPROVER, b"n" * 32)
        second = await signer(ports, TENANT, APPROVER)
        world.edit_directory(lambda tenant: tenant.update(approvers=[]))
        assert await signer(ports, TENANT, APPROVER) is None
        stated = [loads(line.body or b"")["person"] for line in await lines(world)]
        assert stated == [first.to_json() if first else None, second.to_json() if second else None, None]
        assert await lines(world, "user_nobody") == []
        await world.aclose()

    run(go())


def test_a_line_is_in_force_until_the_next_within_the_difference_of_clocks(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        ports = world.deployment.ports
        first = await signer(ports, TENANT, APPROVER)
        world.clock.at_us += HOUR_US
        world.know(APPROVER, b"n" * 32)
        second = await signer(ports, TENANT, APPROVER)
        began, changed = (line.at_us for line in await lines(world))
        people = ListedPeople(world.keys, await lines(world))

        def at(since_us: int, until_us: int | None = None) -> list[Approver]:
            return people.in_force(APPROVER, since_us, until_us or since_us)

        assert at(began - 3 * CLOCK_MARGIN_US) == []
        assert at(began) == [first]
        assert at(changed - CLOCK_MARGIN_US) == [second, first]
        assert at(changed + 3 * CLOCK_MARGIN_US) == [second]
        assert at(began, changed + HOUR_US) == [second, first]
        assert people.in_force("user_nobody", began, changed) == []
        world.close()

    run(go())


@pytest.mark.parametrize(
    "change",
    [
        lambda line: {},
        lambda line: {"key": "user_other"},
        lambda line: {"by": "mallory"},
        lambda line: {"at_us": line.at_us + 1},
        lambda line: {"salt": bytes(16)},
        lambda line: {"body": canonical(loads(line.body) | {"person": None})},
        lambda line: {"body": b"{}"},
        lambda line: {"body": b"no JSON"},
    ],
)
def test_a_copied_or_altered_line_is_named_and_changes_nothing(tmp_path: Path, change: Any) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        ports = world.deployment.ports
        person = await signer(ports, TENANT, APPROVER)
        (line,) = await lines(world)
        await add(world, line, **change(line))
        assert await signer(ports, TENANT, APPROVER) == person
        control = await world.stores.tenant(TENANT).read(CONTROL)
        with pytest.raises(ChainBroken, match=f"entry {len(control)}"):
            ListedPeople(world.keys, control)
        world.close()

    run(go())


def test_a_line_that_another_runtime_sealed_does_not_count(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        await signer(world.deployment.ports, TENANT, APPROVER)
        with pytest.raises(ChainBroken):
            ListedPeople(KeyRing.from_seed(b"o" * 32), await lines(world))
        world.close()

    run(go())
