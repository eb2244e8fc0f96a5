"""Who gave the answers in a run: which lines are read, what is proved by them, and with keys from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from contextos.contracts.journal import CONTROL, Entry
from contextos.errors import ChainBroken
from contextos.trust.approvals.signers import signers_of, verify_signers
from tests.world import APPROVER, APPROVER_KEY, TENANT, TestWorld, open_world, public_key, request, run


async def approved(world: TestWorld) -> tuple[Sequence[Entry], Sequence[Entry]]:
    """The entries of a run that was approved, and those of `control`."""
    waiting = await world.invoke(request(4200, "req_1"))
    assert (await world.approve(waiting.run_id)).state == "completed"
    store = world.stores.tenant(TENANT)
    return await store.read(waiting.run_id), await store.read(CONTROL)


def test_a_run_names_who_answered_in_it_and_their_lines_prove_it(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        tape, control = await approved(world)
        assert signers_of(tape) == {APPROVER}
        verify_signers(tape, control, world.keys)
        without = [line for line in control if line.key != APPROVER]
        with pytest.raises(ChainBroken, match=APPROVER):
            verify_signers(tape, without, world.keys)
        world.close()

    run(go())


def test_a_key_from_outside_has_to_be_the_one_that_signed(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        tape, control = await approved(world)
        verify_signers(tape, control, world.keys, persons={APPROVER: {public_key(APPROVER_KEY).hex()}})
        verify_signers(tape, control, world.keys, persons={"user_other": {public_key(b"x" * 32).hex()}})
        for keys in ({public_key(b"x" * 32).hex()}, set()):
            with pytest.raises(ChainBroken, match=APPROVER):
                verify_signers(tape, control, world.keys, persons={APPROVER: keys})
        world.close()

    run(go())


def test_a_key_that_was_revoked_before_the_answer_proves_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        tape, control = await approved(world)
        world.clock.at_us += 3_600_000_000
        world.know(APPROVER, b"n" * 32)
        waiting = await world.invoke(request(4300, "req_2"))
        assert (await world.approve(waiting.run_id, seed=b"n" * 32)).state == "completed"
        store = world.stores.tenant(TENANT)
        later, lines = await store.read(waiting.run_id), await store.read(CONTROL)
        verify_signers(tape, lines, world.keys)
        verify_signers(later, lines, world.keys)
        with pytest.raises(ChainBroken, match=APPROVER):
            verify_signers(later, control, world.keys)
        world.close()

    run(go())
