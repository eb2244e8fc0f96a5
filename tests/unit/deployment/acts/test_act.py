"""An act is one commit with its proof, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import CONTROL
from contextos.deployment.acts.act import Actor, ActProposal, propose_commit, prove_act
from contextos.errors import Conflict, InvalidInput
from tests.world import OPERATOR, OPERATOR_KEY, TENANT, open_world, run

WRITE = CANCELS.write("run_1", 0, CancelRequest(OPERATOR, ""))
PROPOSED = ProposedAct("run.retried", "run_1", {"run": "run_1", "failures": 1}, 7, (WRITE,))


def test_an_act_and_its_writes_are_one_commit(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        ports, config = world.deployment.ports, world.deployment.config
        store = world.stores.tenant(TENANT)
        await propose_commit(ports, config, TENANT, PROPOSED, world.actor()).signed()
        lines = await store.read(CONTROL)
        body = json.loads(lines[-1].body or b"")
        assert (lines[-1].kind, lines[-1].key, lines[-1].by) == ("run.retried", "run_1", OPERATOR)
        assert (body["act"]["expected"], body["role"]) == (7, "operator")
        assert len(await store.scan("cancels")) == 1
        with pytest.raises(Conflict):
            await propose_commit(ports, config, TENANT, PROPOSED, world.actor()).signed()
        assert len(await store.read(CONTROL)) == len(lines)
        world.close()

    run(go())


def test_what_was_proposed_is_signed_and_committed_later_or_conflicts(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        ports, config = world.deployment.ports, world.deployment.config
        store = world.stores.tenant(TENANT)
        first, second = (propose_commit(ports, config, TENANT, PROPOSED, world.actor()) for _ in range(2))
        assert first.statements == second.statements
        assert (first.statements[0]["kind"], first.statements[0]["expected"]) == ("run.retried", 7)
        assert await store.scan("cancels") == []
        await first.commit([first.by.vouch(one) for one in first.statements])
        with pytest.raises(Conflict):
            await second.signed()
        assert len(await store.scan("cancels")) == 1
        world.close()

    run(go())


def test_a_proposal_of_nothing_asks_nobody_to_sign(tmp_path: Path) -> None:
    def refuse(_statement: object) -> dict[str, str]:
        raise AssertionError("there is nothing to sign")

    async def twice(number: int) -> int:
        return 2 * number

    assert run(ActProposal.of_nothing(Actor(OPERATOR, refuse), 21).then(twice).signed()) == 42


def test_only_an_act_on_an_own_run_needs_no_role(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.know("usr_771")
        ports, config, by = world.deployment.ports, world.deployment.config, world.actor("usr_771")
        stop = ProposedAct("run.cancelled", "run_1", {"run": "run_1", "reason": ""})
        _, draft = await prove_act(ports, config, TENANT, stop, by, own_run=True)
        assert json.loads(draft.body)["role"] is None
        world.close()

    run(go())


def test_an_act_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        ports, config = world.deployment.ports, world.deployment.config
        with pytest.raises(InvalidInput):
            await prove_act(ports, config, TENANT, PROPOSED, Actor("x" * 10_000, lambda _: {}))
        world.close()

    run(go())


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Actor.with_key(OPERATOR, OPERATOR_KEY[:31])
